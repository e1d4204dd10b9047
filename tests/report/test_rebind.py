"""A user's own Markdown: only bound numbers change, every other byte stays."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dreamproof.base.errors import BadInput
from dreamproof.report import suggest_mapping, update_markdown
from dreamproof.report.numbers import Numbers
from dreamproof.report.rebind import UNIT, rebind

NAMES = ("score", "cost")


def numbers() -> Numbers:
    found = Numbers()
    found.put("main.a.id.mean", 2.34567, "2.346", ("a/0@id",))
    found.put("main.a.id.sd", 0.5, "0.500", ("a/0@id",))
    found.put("main.a.id.difference", -1.5, "−1.500", ())
    found.put("main.a.id.steps", 1234567.0, "1,234,567", ())
    found.put("main.a.id.none", None, "–", ())
    found.put("main.a.id.share", 0.7349, "73%", ())
    found.put("main.a.id.small", 0.0079371, "0.008", ())
    return found


def document(folder: Path, text: str | bytes) -> Path:
    path = folder / "ppt.md"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def after(folder: Path, text: str) -> str:
    return rebind(document(folder, text), numbers()).after


def test_an_anchored_number_takes_the_new_value_in_the_old_form(tmp_path: Path) -> None:
    assert after(tmp_path, "得分 <!--dp:main.a.id.mean-->1.68±<!--dp:main.a.id.sd-->0.741。") == (
        "得分 <!--dp:main.a.id.mean-->2.35±<!--dp:main.a.id.sd-->0.500。"
    )
    assert after(tmp_path, "<!-- dp:main.a.id.mean --> **+1**") == "<!-- dp:main.a.id.mean --> **+2**"
    assert after(tmp_path, "<!--dp:main.a.id.difference-->−9.99") == "<!--dp:main.a.id.difference-->−1.50"
    assert after(tmp_path, "<!--dp:main.a.id.difference-->9.9") == "<!--dp:main.a.id.difference-->-1.5"
    assert after(tmp_path, "<!--dp:main.a.id.steps-->9,999") == "<!--dp:main.a.id.steps-->1,234,567"


@pytest.mark.parametrize(
    ("key", "old", "new"),
    [
        ("share", "71%", "73%"),
        ("share", "71.0 %", "73.5 %"),
        ("share", "**71**%", "**73**%"),
        ("share", "0.71", "0.73"),
        ("mean", "5.1%", "2.3%"),
        ("small", "8.0e-3", "7.9e-3"),
        ("small", "8.00E-03", "7.94E-03"),
        ("steps", "1.1e+6", "1.2e+6"),
        ("steps", "1.1M", "1.2M"),
        ("steps", "110.5万", "123.5万"),
        ("steps", "1100k steps", "1235k steps"),
        ("difference", "+2.0", "-1.5"),
        ("steps", "1.1×10⁶", "1.2×10⁶"),
        ("steps", "1.1 x 10^6", "1.2 x 10^6"),
        ("steps", r"1.1\times10^{6}", r"1.2\times10^{6}"),
        ("small", "8.00·10⁻³", "7.94·10⁻³"),
        ("small", "0.1", "0.008"),
    ],
)
def test_units_signs_and_powers_of_ten_are_the_authors(tmp_path: Path, key: str, old: str, new: str) -> None:
    anchor = f"<!--dp:main.a.id.{key}-->"
    assert after(tmp_path, f"x {anchor}{old} y") == f"x {anchor}{new} y"


def test_a_percent_sign_that_may_mean_two_things_is_left_alone_and_reported(tmp_path: Path) -> None:
    found = rebind(document(tmp_path, "<!--dp:main.a.id.share-->0.7%"), numbers())
    assert (found.after, found.unclear_units) == (found.before, ["main.a.id.share"])
    large = rebind(document(tmp_path, "<!--dp:main.a.id.mean-->1.5M"), numbers())
    assert (large.after, large.unclear_units) == (large.before, ["main.a.id.mean"])


@pytest.mark.parametrize("old", ["1.2×10³", "1.2 x 10^3", "1.234,5", "1.2.3", "1/2", "2024-01-02", "12:30"])
def test_part_of_a_longer_number_is_left_alone_and_reported(tmp_path: Path, old: str) -> None:
    found = rebind(document(tmp_path, f"<!--dp:main.a.id.mean-->{old}"), numbers())
    assert (found.after, found.unclear_units) == (found.before, ["main.a.id.mean"])


def test_a_cell_with_more_numbers_than_keys_is_not_guessed_at(tmp_path: Path) -> None:
    table = document(tmp_path, "| arm | 得分 |\n|---|---|\n| a | v2 得分 1.684 |\n")
    mapping = tmp_path / "mapping.yaml"
    mapping.write_text("- {row: a, column: 得分, keys: [main.a.id.mean]}\n")
    with pytest.raises(BadInput, match="has 2 numbers for 1 keys; it is not guessed which"):
        rebind(table, numbers(), mapping)


def test_utf_16_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="UTF-16"):
        rebind(document(tmp_path, "<!--dp:main.a.id.mean-->1.0\n".encode("utf-16")), numbers())


def test_many_anchors_take_time_in_proportion(tmp_path: Path) -> None:
    lines = "".join(f"line {n} <!--dp:main.a.id.mean-->1.0 end\n" for n in range(60_000))
    found = rebind(document(tmp_path, lines), numbers())
    assert (found.bound, found.changes[-1].line) == (60_000, 60_000)
    assert found.diff.count("\n+line") == 60_000


def test_an_unbound_number_is_never_touched(tmp_path: Path) -> None:
    text = "2026 年 1.684 <!-- other --> 1.684 `<!--dp:-` 3 <!--dp:main.a.id.mean-->1.684 1.684\n"
    assert after(tmp_path, text) == text.replace("mean-->1.684", "mean-->2.346")


def test_a_document_without_anchors_stays_as_it_is(tmp_path: Path) -> None:
    found = rebind(document(tmp_path, "1 2 3"), numbers())
    assert (found.after, found.diff, found.bound) == ("1 2 3", "", 0)


def test_bytes_that_are_not_utf8_and_line_ends_survive(tmp_path: Path) -> None:
    raw = b"\xff\xfe caf\xe9\r\n<!--dp:main.a.id.mean-->1.0\r\nlast"
    found = rebind(document(tmp_path, raw), numbers())
    found.write()
    assert found.path.read_bytes() == raw.replace(b"1.0", b"2.3")


def test_the_diff_shows_every_change_and_its_line(tmp_path: Path) -> None:
    found = rebind(document(tmp_path, "a\n<!--dp:main.a.id.mean-->1.0\nb\n"), numbers())
    assert "-<!--dp:main.a.id.mean-->1.0\n+<!--dp:main.a.id.mean-->2.3\n" in found.diff
    assert [(change.line, change.old, change.new) for change in found.changes] == [(2, "1.0", "2.3")]
    assert document(tmp_path, "x").read_text() == "x"


def test_a_value_that_is_not_known_leaves_the_number_and_says_so(tmp_path: Path) -> None:
    found = rebind(document(tmp_path, "<!--dp:main.a.id.none-->7"), numbers())
    assert found.after == found.before
    assert found.unknown_values == ["main.a.id.none"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("<!--dp:main.a.id.maen-->1", "did you mean 'main.a.id.mean'"),
        ("x\n<!--dp:main.a.id.mean-->none", "ppt.md:2: no number follows the anchor"),
    ],
)
def test_a_wrong_anchor_is_an_error_with_its_place(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        after(tmp_path, text)


TABLE = """\
| config | ID score(mean±std) | OOD |
|---|---:|---:|
| **v2_a** | 1.684±0.741 | 3 |
| v2_b | 1.684±0.741 | 4 |

In 2026 the baseline scores 1.684 (seed 0).
"""
MAPPING = """\
- {row: v2_a, column: ID score, keys: [main.a.id.mean, main.a.id.sd]}
- {after: "the baseline scores ", keys: [main.a.id.mean]}
"""


def test_a_mapping_binds_table_cells_and_sentences(tmp_path: Path) -> None:
    mapping = tmp_path / "map.yaml"
    mapping.write_text(MAPPING)
    found = rebind(document(tmp_path, TABLE), numbers(), mapping)
    assert found.after == TABLE.replace("**v2_a** | 1.684±0.741", "**v2_a** | 2.346±0.500").replace(
        "scores 1.684", "scores 2.346"
    )


@pytest.mark.parametrize(
    ("mapping", "complaint"),
    [
        ("- {row: v2_c, column: ID, keys: [main.a.id.mean]}", "stands 0 times"),
        ("- {after: 1.684, keys: [main.a.id.mean]}", r"binding 1: after: must be text, not 1\.684"),
        ("- {behind: a, keys: [main.a.id.mean]}", "binding 1: unknown key 'behind'"),
        ("{after: a}", "is not a list of bindings like"),
        ("- {after: '1.684', keys: [main.a.id.mean]}", "stands 3 times, not once"),
        ("- {row: v2_a, column: OOD, keys: [main.a.id.mean, main.a.id.sd]}", "1 numbers for 2 keys"),
        ("- {row: v2_a, keys: [main.a.id.mean]}", "needs row and column, or after"),
        ("- [", "is not a list of bindings"),
    ],
)
def test_a_mapping_that_names_nothing_is_refused(tmp_path: Path, mapping: str, complaint: str) -> None:
    path = tmp_path / "map.yaml"
    path.write_text(mapping)
    with pytest.raises(BadInput, match=complaint):
        rebind(document(tmp_path, TABLE), numbers(), path)


def test_a_number_bound_twice_is_refused(tmp_path: Path) -> None:
    mapping = tmp_path / "map.yaml"
    mapping.write_text("- {after: '-->', keys: [main.a.id.sd]}")
    with pytest.raises(BadInput, match="bound to the same number"):
        rebind(document(tmp_path, "<!--dp:main.a.id.mean-->1.0"), numbers(), mapping)


def test_the_users_own_slides_are_brought_up_to_date(users_case: Path) -> None:
    ppt = users_case / "ppt.md"
    ppt.write_text(
        "ID 得分：<!--dp:main.v2_baseline.id.mean-->9.999±<!--dp:main.v2_baseline.id.sd-->9.999（5 seeds）\n"
    )
    found = update_markdown(users_case, ppt)
    found.write()
    assert "mean-->1.684±" in ppt.read_text() and "sd-->0.741（5 seeds）" in ppt.read_text()
    again = update_markdown(users_case, ppt)
    assert again.diff == ""


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(), st.text())
def test_whatever_surrounds_an_anchor_stays(tmp_path: Path, before: str, behind: str) -> None:
    if "dp:" in before + behind or "\0" in before + behind or (behind[:1] and behind[0] in "0123456789.,eE/:-"):
        return
    if UNIT.match(behind):  # tested above
        return
    text = f"{before}<!--dp:main.a.id.mean-->1.0{behind}"
    found = rebind(document(tmp_path, text.encode("utf-8", "surrogatepass")), numbers())
    found.write()
    expected = f"{before}<!--dp:main.a.id.mean-->2.3{behind}".encode("utf-8", "surrogatepass")
    assert found.path.read_bytes() == expected


def test_a_mapping_that_unfolds_without_end_or_is_no_text_is_refused(tmp_path: Path) -> None:
    bomb = "- &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"- &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 9)
    )
    for name, content in (("bomb.yaml", bomb.encode()), ("bytes.yaml", b"\xff\xfe\x00")):
        mapping = tmp_path / name
        mapping.write_bytes(content)
        with pytest.raises(BadInput, match=name):
            rebind(document(tmp_path, TABLE), numbers(), mapping)


def test_a_mapping_is_suggested_from_the_headers_of_a_table(users_case: Path, tmp_path: Path) -> None:
    table = document(
        tmp_path,
        "| arm | ID score | hallu2 score | seeds |\n|---|---|---|---|\n"
        "| v2_full | 1.9±0.4 | 0.999 | 4 |\n| other | 1.0 | 2.0 | 4 |\n",
    )
    lines = suggest_mapping(users_case, table)
    assert lines[0] == '- {"keys":["main.v2_full.id.mean","main.v2_full.id.sd"],"row":"v2_full","column":"ID score"}'
    assert len(lines) == 2
    mapping = tmp_path / "mapping.yaml"
    mapping.write_text("\n".join(lines))
    assert update_markdown(users_case, table, mapping).bound == 3


def test_a_column_of_another_metric_or_of_another_checkpoint_never_gets_the_metric(
    imported_study: Callable[..., Path], tmp_path: Path
) -> None:
    rows = [f"b,{seed},{where},final,{name},{seed}" for seed in (0, 1) for where in ("id", "shifted") for name in NAMES]
    study = imported_study("\n".join(rows) + "\n", constraint="{name: cost, at_most: 5}")
    headers = ("ID cost", "shifted cost (mean)", "cost@best(mean)", "best score", "ID score seed 0", "width", "ID 成本")
    table = document(
        tmp_path,
        f"| arm | {' | '.join(headers)} | ID 均值 |\n{'|---' * (len(headers) + 2)}|\n"
        f"| b {'| 1.0 ' * (len(headers) + 1)}|\n",
    )
    bound = [yaml.safe_load(line)[0] for line in suggest_mapping(study, table)]
    assert {one["column"]: one["keys"] for one in bound} == {
        "ID cost": ["main.b.id.cost.mean"],
        "shifted cost (mean)": ["main.b.shifted.cost.mean"],
        "ID 均值": ["main.b.id.mean"],
    }


def test_only_headers_that_say_which_number_they_mean_are_suggested(users_case: Path, tmp_path: Path) -> None:
    table = document(
        tmp_path,
        "| arm | id n | P(improvement) id | id seeds | validation | id cost | cost | id_score_mean | 得分 id |\n"
        + "|---" * 9
        + "|\n| v2_full | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 |\n",
    )
    lines = suggest_mapping(users_case, table)
    assert [line.split('"column":')[1] for line in lines] == ['"id_score_mean"}', '"得分 id"}']

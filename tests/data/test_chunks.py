"""Chunks of TD-MPC2: both layouts are read without PyTorch, hostile files are refused, and nothing in them runs."""

import json
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from dreamproof.base.errors import BadInput
from dreamproof.cli.main import app
from dreamproof.data.chunk_writer import ROOT, describe, write_chunk
from dreamproof.data.library import EpisodeLibrary
from dreamproof.data.recordings import Recording, filled_arrays, open_episodes, read_good_part
from dreamproof.data.summary import summarise
from dreamproof.settings.recorded import RecordedData
from dreamproof.settings.task_sets import MT30, MT80

REAL = Path(__file__).parent / "files" / "tensordict-0.15.pt"
"""Written by torch.save of PyTorch 2.15 and tensordict 0.15.3: three episodes of five rows, obs counting up from 0."""
TENSOR = b"ctorch._utils\n_rebuild_tensor_v2\n"
MAKE = b"ctensordict._reductions\n_make_td\nctensordict._td\nTensorDict\n"


def episodes(count: int = 60, rows: int = 501) -> Recording:
    chance = np.random.default_rng(0)
    observation = chance.normal(size=(count, rows, 24)).astype(np.float32)
    action = chance.uniform(-1, 1, (count, rows, 6)).astype(np.float32)
    reward = chance.uniform(0, 2, (count, rows)).astype(np.float32)
    return Recording(observation, action, reward, np.arange(count) % 30, np.full(count, rows), np.zeros(count, bool))


def arrays(rows: int = 5) -> dict[str, np.ndarray]:
    filled = filled_arrays(episodes(3, rows))
    return {name: filled[name] for name in ("obs", "action", "reward", "task")}


def members(description: bytes, values: dict[str, np.ndarray]) -> dict[str, bytes]:
    stored = {f"{ROOT}/data/{number}": value.tobytes() for number, value in enumerate(values.values())}
    return {f"{ROOT}/data.pkl": description, f"{ROOT}/byteorder": b"little", **stored}


def written(path: Path, content: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, value in content.items():
            archive.writestr(name, value)
    return path


def test_a_file_of_the_present_tensordict_is_read(tmp_path: Path) -> None:
    found = open_episodes(REAL)
    assert np.array_equal(found.observation, np.arange(60.0).reshape(3, 5, 4))
    assert found.task[:, 0].tolist() == [0, 1, 2]
    assert not found.observation.flags.writeable


def test_a_file_of_the_older_layout_is_read(tmp_path: Path) -> None:
    """Objects that are made without arguments and given their state, as tensordict wrote them in 2023."""
    old = describe(arrays()).replace(MAKE, b"ctensordict.tensordict\nTensorDict\n)\x81").replace(b"\x86R.", b"b.")
    found = open_episodes(written(tmp_path / "old.pt", members(old, arrays())))
    assert np.array_equal(found.observation, arrays()["obs"])


def test_what_is_written_is_read_again_without_filler_and_padding(tmp_path: Path) -> None:
    made = episodes()
    write_chunk(tmp_path / "chunk_0.pt", made)
    found = read_good_part(open_episodes(tmp_path / "chunk_0.pt"))
    assert found.task_info is not None and found.task_info.names[5] == "reacher-hard"
    assert np.array_equal(found.reward[:, 1:], made.reward[:, 1:]) and not found.reward[:, 0].any()
    assert np.array_equal(found.action[0, 1:], made.action[0, 1:]) and not found.action[:, 0].any()
    assert np.array_equal(found.action[5, 1:, :2], made.action[5, 1:, :2]) and not found.action[5, :, 2:].any()
    assert np.array_equal(found.observation[5, :, :6], made.observation[5, :, :6])
    assert not found.observation[5, :, 6:].any()
    mapped = open_episodes(tmp_path / "chunk_0.pt").observation
    assert isinstance(mapped, np.memmap) and mapped.offset % 64 == 0


def test_episodes_that_end_early_are_not_written_as_a_chunk(tmp_path: Path) -> None:
    made = episodes(4, 5)
    made.rows[2] = 3
    with pytest.raises(BadInput, match="cannot record that episodes end early"):
        write_chunk(tmp_path / "chunk_0.pt", made)
    assert not list(tmp_path.iterdir())


def test_the_sets_have_their_tasks_in_order() -> None:
    assert len(MT30) == 30 and len(MT80) == 80 and MT80[:30] == MT30
    assert [MT30[number].name for number in (0, 12, 29)] == ["walker-stand", "cup-catch", "pendulum-spin"]
    assert MT30[26] == ("reacher-three-easy", 8, 3) and MT30[4] == ("reacher-easy", 6, 2)
    assert MT80[79] == ("mw-hand-insert", 39, 4)


def swapped(old: bytes, new: bytes) -> Callable[[], dict[str, bytes]]:
    """Members of a file in whose description something is replaced."""

    def make() -> dict[str, bytes]:
        changed = describe(arrays()).replace(old, new, 1)
        assert changed != describe(arrays())
        return members(changed, arrays())

    return make


def called(module: str, name: str) -> Callable[[], dict[str, bytes]]:
    """A file that would call a function instead of making a tensor."""
    return swapped(TENSOR, f"c{module}\n{name}\n".encode())


def plain(description: bytes) -> Callable[[], dict[str, bytes]]:
    return lambda: members(description, arrays())


def changed(**changes: bytes | None) -> Callable[[], dict[str, bytes]]:
    """A file with other members; None takes one away."""

    def make() -> dict[str, bytes]:
        content = members(describe(arrays()), arrays())
        for name, value in changes.items():
            content[f"{ROOT}/{name.replace('_', '/')}"] = value if value is not None else b""
            if value is None:
                del content[f"{ROOT}/{name.replace('_', '/')}"]
        return content

    return make


def whole(number: int) -> bytes:
    return b"\x8a\x08" + number.to_bytes(8, "little", signed=True)


class Exploit:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return __import__("os").system, ("touch executed",)


HOSTILE = {
    "os.system": called("os", "system"),
    "posix.system": called("posix", "system"),
    "eval": called("builtins", "eval"),
    "exec": called("builtins", "exec"),
    "getattr": called("builtins", "getattr"),
    "import": called("builtins", "__import__"),
    "python 2 eval": called("__builtin__", "eval"),
    "Popen": called("subprocess", "Popen"),
    "runpy": called("runpy", "run_path"),
    "torch.load": called("torch", "load"),
    "torch.hub": called("torch.hub", "load"),
    "another rebuild": called("torch._utils", "_rebuild_wrapper_subclass"),
    "numpy": called("numpy.core.multiarray", "_reconstruct"),
    "pathlib": called("pathlib", "PosixPath"),
    "copyreg": called("copyreg", "__newobj__"),
    "a name that begins like tensordict": called("tensordict_evil", "run"),
    "storage of another module": swapped(b"ctorch\nFloatStorage\n", b"cos\nFloatStorage\n"),
    "a real exploit": plain(pickle.dumps(Exploit(), protocol=2)),
    "the same in protocol 4": plain(pickle.dumps(Exploit(), protocol=4)),
    "the same in protocol 0": plain(pickle.dumps(Exploit(), protocol=0)),
    "INST": plain(b"(S'touch executed'\nios\nsystem\n."),
    "OBJ": plain(b"(cos\nsystem\nX\x01\x00\x00\x00ao."),
    "EXT1": plain(b"\x80\x02\x82\x01."),
    "state of a name": swapped(MAKE, MAKE + b"}b"),
    "no end": swapped(b"\x86R.", b"\x86R"),
    "two values": swapped(b"\x86R.", b"\x86RN."),
    "nothing": plain(b""),
    "garbage": plain(bytes(range(256))),
    "a call of text": plain(b"\x80\x02X\x01\x00\x00\x00a)R."),
    "unknown storage type": swapped(b"ctorch\nFloatStorage\n", b"ctorch\nBFloat16Storage\n"),
    "storage of another type": swapped(b"ctorch\nFloatStorage\n", b"ctorch\nDoubleStorage\n"),
    "count beyond the storage": swapped(whole(3 * 5 * 24), whole(3 * 5 * 24 + 1)),
    "shape beyond the storage": swapped(b"(" + whole(3) + whole(5) + whole(24), b"(" + whole(9) + whole(5) + whole(24)),
    "negative shape": swapped(b"(" + whole(3) + whole(5) + whole(24), b"(" + whole(-3) + whole(5) + whole(24)),
    "strides that repeat": swapped(b"(" + whole(120) + whole(24), b"(" + whole(0) + whole(24)),
    "offset beyond the storage": swapped(b"tQ" + whole(0), b"tQ" + whole(1 << 40)),
    "text for a size": swapped(b"tQ" + whole(0), b"tQX\x01\x00\x00\x00a"),
    "missing storage": changed(data_1=None),
    "short storage": changed(data_0=b"\0" * 8),
    "long storage": changed(data_0=b"\0" * 8000),
    "big-endian": changed(byteorder=b"big"),
    "no description": changed(**{"data.pkl": None}),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_description_is_refused_and_nothing_runs(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="refused"):
        open_episodes(written(tmp_path / "bad.pt", HOSTILE[kind]()))
    assert [path.name for path in tmp_path.iterdir()] == ["bad.pt"]


def test_what_would_be_imported_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"would import os\.system"):
        open_episodes(written(tmp_path / "bad.pt", HOSTILE["os.system"]()))


def good() -> dict[str, bytes]:
    return members(describe(arrays()), arrays())


def compressed(path: Path) -> None:
    written(path, good(), zipfile.ZIP_DEFLATED)


def named(name: str) -> Callable[[Path], None]:
    return lambda path: written(path, {**good(), name: b"x"}) and None


def edited(edit: Callable[[bytearray], None]) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        content = bytearray(written(path, good()).read_bytes())
        edit(content)
        path.write_bytes(content)

    return make


def directory_entry(content: bytearray, number: int) -> int:
    place = -1
    for _ in range(number + 1):
        place = content.index(b"PK\x01\x02", place + 1)
    return place


def overlap(content: bytearray) -> None:
    """Two entries of the directory lead to the same bytes."""
    first, second = directory_entry(content, 2), directory_entry(content, 3)
    content[second + 42 : second + 46] = content[first + 42 : first + 46]


def other_name(content: bytearray) -> None:
    place = content.index(f"{ROOT}/data/1".encode())
    content[place : place + len(ROOT)] = b"x" * len(ROOT)


def beyond_the_end(content: bytearray) -> None:
    place = directory_entry(content, 5)
    content[place + 20 : place + 28] = struct.pack("<II", 1 << 30, 1 << 30)


def encrypted(content: bytearray) -> None:
    content[6] |= 1
    content[directory_entry(content, 0) + 8] |= 1


ODD_FILES: dict[str, Callable[[Path], None]] = {
    "compressed": compressed,
    "leads out": named("../../outside"),
    "absolute": named("/etc/passwd"),
    "backslash": named("..\\outside"),
    "overlapping": edited(overlap),
    "other name in the header": edited(other_name),
    "beyond the end": edited(beyond_the_end),
    "encrypted": edited(encrypted),
    "something before": edited(lambda content: content.__setitem__(slice(0, 0), b"#!/bin/sh\n")),
    "cut": edited(lambda content: content.__delitem__(slice(len(content) // 2, None))),
    "no directory": edited(lambda content: content.__delitem__(slice(directory_entry(content, 0), None))),
    "empty": lambda path: path.write_bytes(b"") and None,
    "no zip": lambda path: path.write_bytes(pickle.dumps(Exploit(), protocol=2)) and None,
    "empty zip": lambda path: written(path, {}) and None,
}


@pytest.mark.parametrize("kind", ODD_FILES)
def test_an_odd_zip_file_is_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ODD_FILES[kind](tmp_path / "bad.pt")
    with pytest.raises(BadInput, match="refused"):
        open_episodes(tmp_path / "bad.pt")
    assert [path.name for path in tmp_path.iterdir()] == ["bad.pt"]


def test_two_members_of_one_name_are_refused(tmp_path: Path) -> None:
    written(tmp_path / "bad.pt", good())
    with zipfile.ZipFile(tmp_path / "bad.pt", "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr(f"{ROOT}/data.pkl", pickle.dumps(Exploit(), protocol=2))
    with pytest.raises(BadInput, match="same name"):
        open_episodes(tmp_path / "bad.pt")


def test_a_chunk_without_an_array_or_with_other_axes_is_refused(tmp_path: Path) -> None:
    values = arrays()
    written(
        tmp_path / "a.pt", members(describe(values).replace(b"\x03\x00\x00\x00obs", b"\x03\x00\x00\x00pix"), values)
    )
    with pytest.raises(BadInput, match="'obs' is missing"):
        open_episodes(tmp_path / "a.pt")
    values["obs"] = values["obs"][..., 0]
    written(tmp_path / "b.pt", members(describe(values), values))
    with pytest.raises(BadInput, match="'obs' has the shape"):
        open_episodes(tmp_path / "b.pt")


def test_faults_are_counted_and_a_faulty_file_is_not_trained_on(tmp_path: Path) -> None:
    made = episodes()
    made.reward[3, 7] = np.nan
    made.action[4] *= 3.0
    made.task[5] = 31
    write_chunk(tmp_path / "chunk_0.pt", made)
    [file] = summarise([tmp_path / "chunk_0.pt"])["files"]
    assert file["faults"] == {
        "have a task number without a name": 1,
        "hold values that are not finite outside of the first row": 1,
        "have actions beyond -1 to 1": 1,
    }
    with pytest.raises(BadInput, match="1 of 60 episodes have a task number without a name"):
        read_good_part(open_episodes(tmp_path / "chunk_0.pt"))


def test_inspect_shows_every_task_over_all_files(tmp_path: Path) -> None:
    made = episodes()
    for number in range(2):
        write_chunk(tmp_path / f"chunk_{number}.pt", made)
    files = [str(tmp_path / f"chunk_{number}.pt") for number in range(2)]
    done = CliRunner().invoke(app, ["data", "inspect", *files, "--json"])
    facts = json.loads(done.stdout)
    assert [task["name"] for task in facts["tasks"]] == [task.name for task in MT30]
    first = facts["tasks"][0]
    assert first["episodes"] == 4 and first["transitions"] == 2000 and sum(first["histogram"]) == 4
    returns = made.reward[[0, 30], 1:].sum(1)
    assert first["return"]["mean"] == pytest.approx(returns.mean(), rel=1e-5)
    shown = CliRunner().invoke(app, ["data", "inspect", *files]).stdout
    assert "60 episodes of 501 rows" in shown and "pendulum-spin" in shown


def test_numbers_of_another_type_are_written_as_float32(tmp_path: Path) -> None:
    made = episodes(2, 5)
    write_chunk(tmp_path / "a.pt", made)
    write_chunk(tmp_path / "b.pt", made._replace(observation=made.observation.astype(np.float64), reward=made.reward))
    assert (tmp_path / "a.pt").read_bytes() == (tmp_path / "b.pt").read_bytes()
    with pytest.raises(BadInput, match="observation of a recording has values of the type <U"):
        write_chunk(tmp_path / "c.pt", made._replace(observation=made.observation.astype(str)))


def test_inspect_finds_changed_bytes_and_fails(tmp_path: Path) -> None:
    path = tmp_path / "chunk_0.pt"
    write_chunk(path, episodes(2, 5))
    content = bytearray(path.read_bytes())
    place = open_episodes(path).reward.offset  # type: ignore[attr-defined]
    content[place + 8] ^= 1
    path.write_bytes(content)
    done = CliRunner().invoke(app, ["data", "inspect", str(path)])
    assert done.exit_code == 2
    assert f"fault: {path}: the bytes of its member chunk/data/2 do not match its checksum" in done.stdout


def test_changed_bytes_are_refused_in_training(tmp_path: Path) -> None:
    path = tmp_path / "chunk_0.pt"
    write_chunk(path, episodes(30))
    library = EpisodeLibrary(RecordedData.model_validate({"files": [str(path)], "tasks": "mt30"}))
    assert list(library.hashes()) == [str(path)]
    content = bytearray(path.read_bytes())
    content[open_episodes(path).reward.offset + 8] ^= 1  # type: ignore[attr-defined]
    path.write_bytes(content)
    with pytest.raises(BadInput, match="the bytes of its member chunk/data/2 do not match its checksum"):
        library.hashes()


def test_a_chunk_cannot_record_terminations(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot record that episodes end by termination"):
        write_chunk(tmp_path / "chunk_0.pt", episodes(4, 5)._replace(terminated=np.array([1, 0, 0, 0])))
    assert not list(tmp_path.iterdir())


def test_a_file_given_twice_is_a_fault_and_refused_in_training(tmp_path: Path) -> None:
    path = tmp_path / "chunk_0.pt"
    write_chunk(path, episodes(30))
    (tmp_path / "same.pt").symlink_to(path)
    files = [str(path), str(tmp_path / "same.pt")]
    done = CliRunner().invoke(app, ["data", "inspect", *files, "--json"])
    assert done.exit_code == 2
    [problem] = json.loads(done.stdout)["problems"]
    assert problem == f"{files[1]}: is given twice, so its episodes count twice"
    with pytest.raises(BadInput, match="is given twice"):
        EpisodeLibrary(RecordedData.model_validate({"files": files, "tasks": "mt30"}))


def test_inspect_shows_the_other_files_where_one_cannot_be_read(tmp_path: Path) -> None:
    good, bad, absent = tmp_path / "chunk_0.pt", tmp_path / "chunk_1.pt", tmp_path / "chunk_2.pt"
    write_chunk(good, episodes(30))
    bad.write_bytes(good.read_bytes()[:200])
    done = CliRunner().invoke(app, ["data", "inspect", *map(str, (bad, good, absent)), "--json"])
    assert done.exit_code == 2
    facts = json.loads(done.stdout)
    assert [file["path"] for file in facts["files"]] == [str(good)] and len(facts["tasks"]) == 30
    assert [problem.split(":")[0] for problem in facts["problems"]] == [str(bad), str(absent)]
    with pytest.raises(BadInput, match="chunk_1"):
        summarise([bad, absent])


def test_a_task_without_a_finite_return_has_no_mean(tmp_path: Path) -> None:
    made = episodes(60)
    made.reward[[0, 30], 7] = np.nan
    made.reward[1, 7] = np.nan
    write_chunk(tmp_path / "chunk_0.pt", made)
    first, second, *_ = summarise([tmp_path / "chunk_0.pt"])["tasks"]
    assert (first["episodes"], first["finite_returns"], first["return"]) == (2, 0, None)
    assert (second["episodes"], second["finite_returns"]) == (2, 1) and sum(second["histogram"]) == 1
    done = CliRunner().invoke(app, ["data", "inspect", str(tmp_path / "chunk_0.pt")])
    assert done.exit_code == 2 and "walker-stand" in done.stdout


def test_a_folder_in_place_of_a_file_is_called_one(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is a folder; list the files in it"):
        open_episodes(tmp_path)

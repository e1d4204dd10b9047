"""Which code this is: by content, wherever it lies."""

import gc
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dreamproof.base.code import SourceCode, named_code, own_code, script_code
from dreamproof.base.code_changes import compare
from dreamproof.base.syntax import syntax_hash

IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@b")


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), *IDENTITY, *arguments], check=True, capture_output=True)


def repository(folder: Path) -> Path:
    """A trainer under git: its script, a module, a configuration and a document."""
    folder.mkdir(parents=True)
    script = folder / "train.py"
    script.write_text("import agent\nSTEPS = 1\n")
    (folder / "agent.py").write_text("RATE = 0.1  # tuned\n")
    (folder / "configs.yaml").write_text("rate: 0.1\n")
    (folder / "README.md").write_text("How to train.\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return script


def code(script: Path, *excluded: Path) -> SourceCode:
    return script_code(script, script.parent, excluded)


def test_a_repository_counts_with_its_commit_edits_and_untracked_files(tmp_path: Path) -> None:
    script = repository(tmp_path / "r")
    clean = code(script)
    assert clean.kind == "repository" and clean.files.keys() == {"agent.py", "configs.yaml", "train.py"}
    assert clean.commit is not None and clean.diff_hash is None and clean.untracked_hash is None
    script.write_text("import agent\nSTEPS = 2\n")
    edited = code(script)
    assert edited.hash != clean.hash and edited.diff_hash is not None and edited.untracked_hash is None
    (script.parent / "new.py").write_text("1\n")
    extended = code(script)
    assert extended.hash != edited.hash and extended.untracked_hash is not None
    assert "untracked_hash" in extended.facts() and str(tmp_path) not in str(extended.facts())


def test_neither_a_new_commit_nor_documents_nor_outputs_change_the_hash(tmp_path: Path) -> None:
    script = repository(tmp_path / "r")
    folder = script.parent
    before = code(script, folder / "results" / "s")
    (folder / "README.md").write_text("Other words.\n")
    (folder / "docs").mkdir()
    (folder / "docs" / "conf.py").write_text("1\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "second")
    for name in ("results/s/runs/a.py", "wandb/run/files/code.py", "__pycache__/x.py", ".hydra/config.yaml", "a.npz"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("1\n")
    (folder / "old" / "study").mkdir(parents=True)
    (folder / "old" / "study" / "ledger.jsonl").write_text("{}\n")
    (folder / "old" / "study" / "copied.py").write_text("1\n")
    (folder / "other.yaml").write_text("name: x\nmetric: {}\narms: {a: {}}\ntrainer: pwm\n")
    after = code(script, folder / "results" / "s")
    assert after.hash == before.hash and after.commit != before.commit


def test_ignored_files_do_not_count(tmp_path: Path) -> None:
    script = repository(tmp_path / "r")
    before = code(script)
    (script.parent / ".gitignore").write_text("scratch.py\n")
    (script.parent / "scratch.py").write_text("1\n")
    assert code(script).hash == before.hash


def test_without_git_the_script_and_source_beside_it_count(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("1\n")
    (tmp_path / "package").mkdir()
    module = tmp_path / "package" / "agent.py"
    module.write_text("1\n")
    (tmp_path / "metrics.csv").write_text("1\n")
    before = code(script)
    assert before.kind == "beside" and before.files.keys() == {"train.py", "package/agent.py"}
    assert before.commit is None
    (tmp_path / "metrics.csv").write_text("2\n")
    assert code(script).hash == before.hash
    module.write_text("2\n")
    assert code(script).hash != before.hash


def test_links_are_not_followed_and_pipes_are_left_out(tmp_path: Path) -> None:
    import os

    script = tmp_path / "train.py"
    script.write_text("1\n")
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "loop.py").symlink_to("loop.py")
    assert code(script).files.keys() == {"train.py", "loop.py"}


def test_named_files_alone_count_and_names_without_files_are_reported(tmp_path: Path) -> None:
    script = repository(tmp_path / "r")
    found, empty = named_code(script.parent, ["train.py", "*.yaml", "missing"], [])
    assert found.files.keys() == {"train.py", "configs.yaml"} and empty == ["missing"]
    (script.parent / "agent.py").write_text("RATE = 1\n")
    assert named_code(script.parent, ["train.py", "*.yaml"], [])[0].hash == found.hash


def test_comments_and_layout_of_python_are_separated_from_changes(tmp_path: Path) -> None:
    script = repository(tmp_path / "r")
    old = code(script).manifest()
    (script.parent / "agent.py").write_text("# other words\nRATE = (\n    0.1\n)\n")
    layout = compare(old, code(script))
    assert layout.layout == ["agent.py"] and not layout.matters
    (script.parent / "agent.py").write_text("RATE = 0.2\n")
    (script.parent / "configs.yaml").unlink()
    (script.parent / "more.py").write_text("1\n")
    found = compare(old, code(script))
    assert found.matters and found.lines() == ["changed agent.py", "added more.py", "removed configs.yaml"]
    assert found.lines(limit=1) == ["changed agent.py", "and 2 more files"]


def test_only_files_that_git_does_not_keep_are_parsed(tmp_path: Path) -> None:
    """A repository of thousands of files would otherwise cost seconds at every start."""
    script = repository(tmp_path / "r")
    assert code(script).manifest()["syntax"] == {}
    (script.parent / "agent.py").write_text("RATE = 0.2\n")
    (script.parent / "new.py").write_text("1\n")
    old = code(script).manifest()
    assert old["syntax"].keys() == {"agent.py", "new.py"}
    (script.parent / "agent.py").write_text("RATE = 0.2  # better\n")
    (script.parent / "new.py").write_text("# one\n1\n")
    assert compare(old, code(script)).layout == ["agent.py", "new.py"]


def test_an_edit_that_git_must_overlook_is_a_change(tmp_path: Path) -> None:
    script = repository(tmp_path / "r")
    git(script.parent, "update-index", "--assume-unchanged", "agent.py")
    (script.parent / "agent.py").write_text("RATE = 0.2\n")
    old = code(script).manifest()
    (script.parent / "agent.py").write_text("RATE = 0.1\n")
    assert compare(old, code(script)).changed == ["agent.py"]


def test_edits_of_named_files_in_a_subfolder_are_seen(tmp_path: Path) -> None:
    script = repository(tmp_path / "r")
    below = script.parent / "below"
    below.mkdir()
    (below / "train.py").write_text("1\n")
    git(script.parent, "add", ".")
    git(script.parent, "commit", "-qm", "second")
    assert named_code(below, ["*.py"], [])[0].diff_hash is None
    (below / "train.py").write_text("2\n")
    assert named_code(below, ["*.py"], [])[0].diff_hash is not None


def test_naming_files_that_counted_before_is_no_change(tmp_path: Path) -> None:
    script = repository(tmp_path / "r")
    old = code(script).manifest()
    (script.parent / "notes.py").write_text("1\n")
    assert compare(old, code(script)).added == ["notes.py"]
    assert not compare(old, named_code(script.parent, ["train.py", "agent.py"], [])[0]).matters


def test_our_own_code_is_what_computes_and_the_file_of_a_task(tmp_path: Path) -> None:
    own = own_code("SafetyPointGoal1", tmp_path)
    assert "train/loop.py" in own.files and not any(name.startswith(("report", "cli", "study")) for name in own.files)
    (tmp_path / "mine.py").write_text("1\n")
    with_task = own_code("mine.py:Mine", tmp_path)
    assert with_task.files.keys() - own.files.keys() == {"task/mine.py"}
    (tmp_path / "mine.py").write_text("2\n")
    assert own_code("mine.py:Mine", tmp_path).hash != with_task.hash


def test_threads_may_parse_at_the_same_time() -> None:
    """Python 3.11 raises SystemError where a thread is interrupted in a parse; garbage collection is enough for it."""
    source = b"def f(x):\n    return [a + (b * c[d]) for a in (1, 2, 3)]\n" * 400

    def give_others_time(*_: object) -> None:
        for _ in range(200):
            pass

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    gc.callbacks.append(give_others_time)
    try:
        with ThreadPoolExecutor(8) as pool:
            hashes = list(pool.map(syntax_hash, [source] * 40))
    finally:
        gc.callbacks.remove(give_others_time)
        sys.setswitchinterval(interval)
    assert set(hashes) == {syntax_hash(source)}
    assert None not in hashes

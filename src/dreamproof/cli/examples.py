"""`dreamproof examples`: the studies and scripts that come with the program."""

import re
from pathlib import Path
from typing import Annotated

import typer

from dreamproof.cli.printing import print_text, table

PACKAGE = Path(__file__).parents[1]
# A study beside the folder of the trainers that it starts, as in the repository.
TRAINER = re.compile(r"\.\./examples/([\w.]+)")


def examples(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Write this one into the current folder.")] = None,
) -> None:
    """List the studies and scripts that come with the program, or write a copy of one into the current folder."""
    from dreamproof.base.errors import BadInput

    studies = {path.stem: path for path in sorted(folder_of("studies").glob("*.yaml"))}
    scripts = {path.name: path for path in sorted(folder_of("examples").glob("*.py"))}
    if name is None:
        print_text(table(["study", "question"], [[each, question_of(path)] for each, path in studies.items()]))
        print_text("")
        print_text(table(["script", "what it is"], [[each, purpose_of(path)] for each, path in scripts.items()]))
        return
    if name not in studies | scripts:
        raise BadInput(f"no example '{name}'; there are {', '.join([*studies, *scripts])}", "dreamproof examples")
    written = copy_study(studies[name], Path.cwd()) if name in studies else copy_script(scripts[name], Path.cwd())
    following = f"run {written[0].name}" if name in studies else "init mine.yaml"
    print_text(f"wrote {', '.join(path.name for path in written)}\n  next: dreamproof {following}")


def folder_of(kind: str) -> Path:
    """`studies` or `examples`: inside the installed package, or in the repository that the source lies in."""
    return PACKAGE / kind if (PACKAGE / kind).is_dir() else PACKAGE.parents[1] / kind


def question_of(study: Path) -> str:
    """The first 90 characters of a study's question."""
    import yaml

    question = " ".join(yaml.safe_load(study.read_text(encoding="utf-8"))["question"].split())
    return question if len(question) <= 90 else f"{question[:89]}…"


def purpose_of(script: Path) -> str:
    """The first line of a script's docstring, at most 90 characters."""
    first = script.read_text(encoding="utf-8").splitlines()[0].strip('"')
    return first if len(first) <= 90 else f"{first[:89]}…"


def copy_script(script: Path, place: Path) -> list[Path]:
    """Writes a copy of one script; refuses to overwrite."""
    return _write({place / script.name: script.read_text(encoding="utf-8")}, script.name)


def copy_study(study: Path, place: Path) -> list[Path]:
    """Writes a study and the trainers that it starts into one folder; refuses to overwrite."""
    text = study.read_text(encoding="utf-8")
    trainers = [folder_of("examples") / trainer for trainer in sorted(set(TRAINER.findall(text)))]
    texts = {place / study.name: TRAINER.sub(r"\1", text)}
    texts |= {place / path.name: path.read_text(encoding="utf-8") for path in trainers}
    return _write(texts, study.stem)


def _write(texts: dict[Path, str], name: str) -> list[Path]:
    from dreamproof.base.errors import BadInput

    for path in texts:
        if path.exists():
            raise BadInput(f"{path.name} exists already", f"dreamproof examples {name}, in another folder")
    for path, content in texts.items():
        path.write_text(content, encoding="utf-8")
    return list(texts)

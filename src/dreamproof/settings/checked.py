"""Types of single values in a study file, checked when they are read: names, lines of text, variables, seeds."""

import re
import shlex
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*\Z")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
MAX_CHARACTERS = 1000
MAXIMUM_SEEDS = 1_000_000
MAXIMUM_SEED = (1 << 32) - 1
"""NumPy takes no larger seed."""
MAXIMUM_STEPS = 10**15


def plain_name(name: str) -> str:
    if not NAME.match(name) or len(name) > 80:
        raise ValueError(f"'{name}' is not a plain name (letters, digits, . _ + -, at most 80)")
    return name


def _plain_line(text: str) -> str:
    """One line of printable text: for tables, file names and scheduler scripts."""
    if not text.isprintable() or len(text) > MAX_CHARACTERS:
        raise ValueError(f"{text[:40]!r} holds a line break or a control character, or is over {MAX_CHARACTERS} long")
    return text


Line = Annotated[str, AfterValidator(_plain_line)]


def _no_hidden_characters(text: str) -> str:
    """Line breaks and tabs are allowed, and no other control character."""
    if not re.sub(r"[\n\t]", " ", text).isprintable():
        raise ValueError(f"{text[:40]!r} holds a control character")
    return text


FreeText = Annotated[str, AfterValidator(_no_hidden_characters)]


def _variable(name: str) -> str:
    if not VARIABLE.match(name):
        raise ValueError(f"'{name}' is not the name of an environment variable")
    return name


def _without_nul(value: str) -> str:
    if "\0" in value:
        raise ValueError("holds a NUL character, which no environment variable can")
    return value


def _no_truth_value(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a whole number is expected")
    return value


Variable = Annotated[str, AfterValidator(_variable)]
EnvironmentValue = Annotated[str, AfterValidator(_without_nul)]
Whole = Annotated[int, BeforeValidator(_no_truth_value)]
Seed = Annotated[Whole, Field(le=MAXIMUM_SEED)]

SHELL_WORD = re.compile(r"&&?|\|\|?|;|\d?>>?(&\d)?|<|\$\w+|\$\{\w+\}|.*\$\(.*|.*`.*")
"""What a shell would act on; a command's arguments are passed as they are."""


def seed_list(value: Any) -> Any:
    """5 means 0..4; '0-4,7' means those; a list is itself."""
    if isinstance(value, bool):
        raise ValueError("seeds are whole numbers")
    if isinstance(value, int):
        if not 1 <= value <= MAXIMUM_SEEDS:
            raise ValueError(f"{value} is not a number of seeds (1 to {MAXIMUM_SEEDS:,})")
        return list(range(value))
    if isinstance(value, str):
        return parse_seeds(value)
    return value


def parse_seeds(text: str) -> list[int]:
    """'0-4,7' as [0, 1, 2, 3, 4, 7]."""
    seeds: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        if not found:
            raise ValueError(f"'{part.strip()}' is not a seed or a range such as 0-4")
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first or last - first > MAXIMUM_SEEDS:
            raise ValueError(f"'{part.strip()}' is not a range of seeds")
        seeds.extend(range(first, last + 1))
    return seeds


def argument_list(value: Any) -> Any:
    """A command in one line as the list of its arguments; a list is itself."""
    if not isinstance(value, str):
        return value
    try:
        arguments = shlex.split(value)
    except ValueError as error:
        raise ValueError(f"cannot be split into arguments: {str(error).lower()}") from None
    for argument in arguments:
        if SHELL_WORD.fullmatch(argument):
            raise ValueError(f"no shell reads '{argument}'; write [bash, -c, '…'] where one is needed")
    if arguments and re.fullmatch(r"\w+=.*", arguments[0]):
        raise ValueError(f"'{arguments[0]}' is no program; set variables under trainer.environment")
    return arguments


SeedList = Annotated[list[Seed], BeforeValidator(seed_list, json_schema_input_type=int | str | list[Seed])]
Arguments = Annotated[list[str], BeforeValidator(argument_list, json_schema_input_type=str | list[str])]

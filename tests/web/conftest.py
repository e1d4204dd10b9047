"""Studies and running dashboards that the tests share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dreamproof.testing.made_study import Plan, make_study
from dreamproof.testing.served import Dashboard, dashboard


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two studies: one complete, one with missing cells. Nobody may change it."""
    folder = tmp_path_factory.mktemp("studies")
    make_study(folder / "whole")
    make_study(folder / "part", Plan(missing=("full/3", "full/4"), missing_evals=(("full/2", "id"),)))
    return folder


@pytest.fixture(scope="session")
def served(made: Path) -> Iterator[Dashboard]:
    """The dashboard of both."""
    with dashboard(made) as running:
        yield running

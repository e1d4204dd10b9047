"""Adds studies/ and examples/ to the package; everything else is in pyproject.toml."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithExamples(build_py):
    """Copies both folders into the built package."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for name in ("studies", "examples"):
                shutil.copytree(name, Path(self.build_lib) / "dreamproof" / name, dirs_exist_ok=True)


setup(cmdclass={"build_py": BuildWithExamples})

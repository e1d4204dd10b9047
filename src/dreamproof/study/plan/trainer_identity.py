"""What trains the cells of a study: every setting after defaults, and the code."""

from dataclasses import dataclass

from dreamproof.base.code import SourceCode
from dreamproof.settings.resolved import Resolved, resolved_hash


@dataclass(frozen=True)
class TrainerIdentity:
    """Every setting after defaults, by arm, and the code that trains."""

    resolved: dict[str, Resolved]
    code: SourceCode

    def hash(self, arm: str) -> str:
        """The hash of an arm's settings after defaults."""
        return resolved_hash(self.resolved[arm])

"""`adapter: auto`: looks at what a run wrote and reads it with the first adapter that knows such files."""

from collections.abc import Sequence
from pathlib import Path

from dreamproof.base.files import Unreadable
from dreamproof.base.safe_text import printable
from dreamproof.runs.layout import CheckpointFolder, RunFolder
from dreamproof.runs.reader import EvalProof, TrainProof
from dreamproof.study.adapters.api import Adapter, FolderAdapter, Reading, Series
from dreamproof.study.adapters.folders import files_below, size_of

MAX_NAMED = 5


def choose(adapters: Sequence[Adapter], run: RunFolder, output: Path | None = None) -> Adapter | None:
    """The first adapter whose files are in a run folder or whose lines were printed; None if there is none."""
    return next((adapter for adapter in adapters if adapter.matches(run, output)), None)


class AutoAdapter(FolderAdapter):
    """Asks the adapter that fits what is there at the moment; before there is anything, nothing has begun."""

    name = "auto"
    looks_for = "any of the files that another adapter reads"
    proves = "what the chosen adapter proves; the preflight names it"

    def __init__(self, adapters: Sequence[Adapter]) -> None:
        super().__init__()
        self.adapters = adapters

    def chosen(self, run: RunFolder, output: Path | None = None) -> Adapter:
        """What reads this run; the last adapter while nothing fits."""
        return choose(self.adapters, run, output) or self.adapters[-1]

    def matches(self, run: RunFolder, output: Path | None = None) -> bool:
        """Whether any adapter fits."""
        return choose(self.adapters, run, output) is not None

    def read(self, run: RunFolder, output: Path | None = None) -> Reading:
        """By the chosen adapter."""
        return self.chosen(run, output).read(run, output)

    def kept_agent_steps(self, run: RunFolder, output: Path | None = None) -> int:
        """By the chosen adapter."""
        return self.chosen(run, output).kept_agent_steps(run, output)

    def kept_unix_seconds(self, run: RunFolder) -> float | None:
        """By the chosen adapter."""
        return self.chosen(run).kept_unix_seconds(run)

    def began_agent_steps(self, run: RunFolder, output: Path) -> int | None:
        """By the chosen adapter."""
        return self.chosen(run, output).began_agent_steps(run, output)

    def save_seconds(self, run: RunFolder) -> float | None:
        """By the chosen adapter."""
        return self.chosen(run).save_seconds(run)

    def prove_training(
        self, run: RunFolder, agent_steps: int, output: Path | None = None, task: str | None = None
    ) -> TrainProof | str:
        """By the chosen adapter; without one, what was looked for."""
        if not self.matches(run, output):
            looked_for = "; ".join(f"{one.name}: {one.looks_for}" for one in self.adapters)
            return f"no adapter knows its files ({_held(run.root)}); looked for {looked_for}"
        return self.chosen(run, output).prove_training(run, agent_steps, output, task)

    def prove_resumed(self, run: RunFolder, agent_steps: int, output: Path) -> TrainProof | str | None:
        """By the chosen adapter."""
        return self.chosen(run, output).prove_resumed(run, agent_steps, output)

    def prove_evaluation(self, run: RunFolder, condition: str, episodes: int, parameter_hash: str) -> EvalProof | str:
        """By the chosen adapter."""
        return self.chosen(run).prove_evaluation(run, condition, episodes, parameter_hash)

    def checkpoint_root(self, run: RunFolder) -> Path:
        """By the chosen adapter."""
        return self.chosen(run).checkpoint_root(run)

    def changed_proof(self, run: RunFolder, proof: TrainProof, check_content: bool) -> Unreadable | None:
        """By the chosen adapter."""
        return self.chosen(run).changed_proof(run, proof, check_content)

    def faulty_checkpoint(self, run: RunFolder) -> tuple[CheckpointFolder, Unreadable] | None:
        """By the chosen adapter."""
        return self.chosen(run).faulty_checkpoint(run)

    def proof_fault(self, run: RunFolder, proof: TrainProof, check_content: bool = True) -> str | None:
        """By the chosen adapter."""
        return self.chosen(run).proof_fault(run, proof, check_content)

    def code_hash(self, run: RunFolder, checkpoint: str) -> str | None:
        """By the chosen adapter."""
        return self.chosen(run).code_hash(run, checkpoint)

    def latest(self, run: RunFolder, output: Path | None = None) -> dict[str, float]:
        """By the chosen adapter."""
        return self.chosen(run, output).latest(run, output)

    def results(self, run: RunFolder, output: Path | None = None) -> Series:
        """By the chosen adapter."""
        return self.chosen(run, output).results(run, output)


def _held(root: Path) -> str:
    """The first files of a run folder; an empty one is called so."""
    files = [f"{printable(path.name)}{'' if size_of(path) else ' (empty)'}" for path in files_below(root)]
    return ", ".join(files[:MAX_NAMED]) + (" …" if len(files) > MAX_NAMED else "") or "none"

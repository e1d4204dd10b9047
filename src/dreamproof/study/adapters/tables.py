"""Generic JSON lines and CSV files with a step in each row."""

import os
from pathlib import Path

from dreamproof.base.safe_text import printable
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.reader import TrainProof
from dreamproof.study.adapters.api import FolderAdapter, Reading, Series
from dreamproof.study.adapters.checkpoints import Steps, kept_steps, newest_save
from dreamproof.study.adapters.folders import files_below, modified, size_of
from dreamproof.study.adapters.rows import (
    CSV_ENDINGS,
    STEP_KEYS,
    TAIL_BYTES,
    WHOLE_BYTES,
    latest_values,
    newest_step,
    prove_by_rows,
    series_of_rows,
    span_of,
    step_key,
    table_rows,
)


class TableAdapter(FolderAdapter):
    """Reads rows with a step; checkpoints are hashed and never opened."""

    endings: tuple[str, ...]
    proves = (
        "steps by the last row, updates and finite values by losses and gradients in the rows, and the final "
        "checkpoint by the step in its name, else by when it was written"
    )

    def matches(self, run: RunFolder, output: Path | None = None) -> bool:
        """Whether a file holds rows with a step."""
        path = self._file(run)
        return path is not None and self._key(table_rows(path, TAIL_BYTES)) is not None

    def _key(self, rows: list[dict[str, object]]) -> str | None:
        return step_key(rows, self.format.step_key)

    def _file(self, run: RunFolder) -> Path | None:
        """metrics.jsonl, or the newest file of this form whose rows have a step, or the newest."""
        if ".jsonl" in self.endings and os.path.exists(run.metrics):
            return run.metrics
        found = [path for path in files_below(run.root) if path.name.endswith(self.endings)]
        found.sort(key=lambda path: (modified(path) or 0.0, path), reverse=True)
        stepped = (path for path in found if self._key(table_rows(path, TAIL_BYTES)) is not None)
        return next(stepped, found[0] if found else None)

    def read(self, run: RunFolder, output: Path | None = None) -> Reading:
        """The last row's step, and the time of the newest checkpoint."""
        path = self._file(run)
        rows = table_rows(path, TAIL_BYTES) if path is not None else []
        key = self._key(rows)
        saved = newest_save(run.root)
        counters: dict[str, float] = {"checkpoint_time": saved} if saved is not None else {}
        if key is None or path is None:
            return Reading(counters=counters)
        steps = self.format.agent_steps(newest_step(rows, key))
        counters |= {"agent_steps": steps, "rows_bytes": size_of(path)}
        return Reading(steps, None, "train", counters)

    def kept_agent_steps(self, run: RunFolder, output: Path | None = None) -> int:
        """Steps of the newest checkpoint, by its name or by file times."""
        path = self._file(run)
        if path is None:
            return kept_steps(run.root)
        reached = self.read(run).agent_steps
        return kept_steps(run.root, reached, span_of(run, path, table_rows(path, WHOLE_BYTES), output))

    def prove_training(
        self, run: RunFolder, agent_steps: int, output: Path | None = None, task: str | None = None
    ) -> TrainProof | str:
        """Steps reached, an update seen, finite values, and a checkpoint of the end."""
        path = self._file(run)
        if path is None:
            return f"no {' or '.join(f'*{ending}' for ending in self.endings)} file"
        rows = table_rows(path, WHOLE_BYTES)
        key = self._key(rows)
        name = printable(path.name)
        if key is None:
            looked = self.format.step_key or f"{', '.join(STEP_KEYS[:4])}, …"
            return f"{name} holds no row with a step ({looked}); declare trainer.step_key"
        reached = self.format.agent_steps(newest_step(rows, key))
        if reached < agent_steps:
            return f"{name} ends at {reached:,} of {agent_steps:,} agent steps"
        return prove_by_rows(run, run.root, rows, Steps(agent_steps, reached), span_of(run, path, rows, output))

    def latest(self, run: RunFolder, output: Path | None = None) -> dict[str, float]:
        """From the last rows of the file."""
        path = self._file(run)
        return latest_values(table_rows(path, TAIL_BYTES)) if path is not None else {}

    def results(self, run: RunFolder, output: Path | None = None) -> Series:
        """Every number over the step."""
        path = self._file(run)
        rows = table_rows(path, WHOLE_BYTES) if path is not None else []
        key = self._key(rows)
        return series_of_rows(rows, key, self.format) if key is not None else {}


class JsonlAdapter(TableAdapter):
    """JSON lines."""

    name = "jsonl"
    endings = (".jsonl",)
    looks_for = "metrics.jsonl or another *.jsonl with step, global_step, env_steps, … or the declared step_key"


class CsvAdapter(TableAdapter):
    """Values separated by commas, semicolons or tabs, with a header."""

    name = "csv"
    endings = CSV_ENDINGS
    looks_for = "a *.csv, *.tsv or progress.txt with a column step, global_step, env_steps, … or the declared step_key"

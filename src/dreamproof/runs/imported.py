"""One value of `imported/results.csv`: a number that somebody else reports of a study."""

from dataclasses import dataclass

VALUE_COLUMNS = ("arm", "seed", "condition", "checkpoint", "metric", "value")


@dataclass(frozen=True)
class ImportedValue:
    """One number of one eval cell; several seeds if only their mean is known, perhaps with the sd between them."""

    arm: str
    seeds: tuple[int, ...]
    condition: str
    checkpoint: str
    metric: str
    value: float
    sd: float | None = None
    line: int = 0
    """Where the table holds it, if it was read from there."""

    def row(self) -> list[str]:
        """The fields of its line."""
        spread = f"±{self.sd:.12g}" if self.sd is not None else ""
        seeds = "+".join(map(str, self.seeds))
        return [self.arm, seeds, self.condition, self.checkpoint, self.metric, f"{self.value:.12g}{spread}"]

"""What a random drill did to each step and how that ended: the table that it prints."""

from collections import Counter
from dataclasses import dataclass, field

COLUMNS = (
    "faults",
    "kills",  # that landed while the step ran
    "late kills",  # that came after its end
    "repaired",  # disturbances after which the next run gave the undisturbed bytes, or what was written is what was received
    "damaged inputs",
    "refused",  # of the damaged inputs: the step fails and names the file or the day
    "reported",  # the day's report or quality shows it
    "identical",  # the damage made no difference
    "time only",  # only timestamps differ, which Kraken's checksum does not cover
    "failed",
)


@dataclass
class Tally:
    """Counts per step, and of what was drawn."""

    steps: dict[str, Counter[str]] = field(default_factory=dict)
    drawn: Counter[str] = field(default_factory=Counter)  # faults by name, damages by kind

    def add(self, step: str, column: str, count: int = 1) -> None:
        assert column in COLUMNS
        self.steps.setdefault(step, Counter())[column] += count

    def merge(self, counts: dict[str, dict[str, int]]) -> None:
        """Add the counts of another tally, as `as_json` gives them."""
        for name, found in counts.items():
            (self.drawn if name == "drawn" else self.steps.setdefault(name, Counter())).update(found)

    def total(self, column: str) -> int:
        return sum(counts[column] for counts in self.steps.values())

    def rows(self) -> list[tuple[str, ...]]:
        """One row per step and one for all, with a header before them."""
        totals = {column: self.total(column) for column in COLUMNS}
        counted = [*self.steps.items(), ("all", totals)]
        return [("step", *COLUMNS), *((name, *(f"{counts[column]:,}" for column in COLUMNS)) for name, counts in counted)]

    def lines(self) -> list[str]:
        rows = self.rows()
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]

    def as_json(self) -> dict[str, dict[str, int]]:
        return {**{name: dict(counts) for name, counts in self.steps.items()}, "drawn": dict(self.drawn)}

"""The report of the demo: a table, and the same as JSON."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from logyard.local import files

Figure = int | float | str | bool | None


@dataclass(slots=True)
class StepReport:
    """One step, with its figures in the order in which they were found."""

    number: int
    name: str
    title: str
    seconds: float = 0.0
    passed: bool = False
    figures: dict[str, Figure] = field(default_factory=dict)
    error: str | None = None


@dataclass(slots=True)
class Report:
    """The whole run; `error` names the step that failed and why."""

    started_at: str
    machine: dict[str, Figure]
    steps: list[StepReport] = field(default_factory=list)
    seconds: float = 0.0
    passed: bool = False
    error: str | None = None

    def write(self, path: Path) -> None:
        files.write_json(path, self.as_json())

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def print(self, console: Console) -> None:
        """Show the steps, their figures and their seconds."""
        table = Table(title="The main job", title_justify="left", show_lines=True)
        table.add_column("step")
        table.add_column("what was done")
        table.add_column("seconds", justify="right")
        for step in self.steps:
            figures = "\n".join(f"{readable(name)}: {shown(value)}" for name, value in step.figures.items())
            mark = "ok" if step.passed else "FAILED"
            told = figures if step.error is None else f"{figures}\n{step.error}".strip()
            table.add_row(f"{step.number}. {step.title}\n{mark}", told, f"{step.seconds:.1f}")
        console.print(table)
        console.print(f"{'passed' if self.passed else 'FAILED'} after {self.seconds:.0f} s")


def readable(name: str) -> str:
    """`bytes_before` → `bytes before`."""
    return name.replace("_", " ")


def shown(value: Figure) -> str:
    """Format a figure: with thousands separators, one decimal, yes or no."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return "-" if value is None else value

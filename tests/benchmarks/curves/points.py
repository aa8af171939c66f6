"""Measured points of how cost grows: a figure at several sizes, and how fast it grows between the last two."""

import json
import math
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
MEASURED = HERE / "measured.json"


@dataclass(slots=True)
class Curve:
    """One kind of size, and what was measured at each: figure → [size, value] in the order of the sizes."""

    name: str
    size: str
    """What is counted, in the plural."""
    figures: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)

    def add(self, size: float, found: Mapping[str, float]) -> None:
        """Add what was measured at one size; figures are named with their units."""
        for figure, value in found.items():
            self.figures.setdefault(figure, []).append((size, value))
        self.machine = {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "load": [round(each, 1) for each in os.getloadavg()],
        }
        print(f"{self.name} {size:>12,.0f}  " + "  ".join(f"{k}: {v:,.2f}" for k, v in found.items()), flush=True)


def growth(points: Iterable[tuple[float, float]]) -> float | None:
    """The exponent between the last two sizes: 1 where twice the size costs twice as much, 0 where it costs nothing.

    None with fewer than two points, or where a value is 0.
    """
    *_, last = found = sorted(points)
    if len(found) < 2 or min(found[-2][1], last[1]) <= 0:
        return None
    return math.log(last[1] / found[-2][1]) / math.log(last[0] / found[-2][0])


def load(path: Path = MEASURED) -> dict[str, Curve]:
    """What was measured last, by name; JSON's lists become points."""
    if not path.exists():
        return {}
    rows = json.loads(path.read_text())
    return {
        row["name"]: Curve(
            row["name"],
            row["size"],
            {figure: [(x, y) for x, y in points] for figure, points in row["figures"].items()},
            row["machine"],
        )
        for row in rows
    }


def keep(curve: Curve, path: Path = MEASURED) -> None:
    """Put a curve in the place of what was measured of it before."""
    curves = load(path) | {curve.name: curve}
    rows = [asdict(each) for _, each in sorted(curves.items())]
    for row in rows:
        for points in row["figures"].values():
            points[:] = [[x, float(f"{y:.4g}")] for x, y in points]
    path.write_text(json.dumps(rows, indent=1) + "\n")

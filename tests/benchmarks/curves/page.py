"""docs/curves.md and its plots, made from measured.json: `python -m tests.benchmarks.curves --page`."""

from pathlib import Path

from tests.benchmarks.curves import points
from tests.benchmarks.curves.plot import draw
from tests.benchmarks.curves.points import Curve, growth

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE, PLOTS = DOCS / "curves.md", DOCS / "curves"
TEXTS = Path(__file__).resolve().parent / "texts.md"
AS_FAST = 1.15


def render(curves: dict[str, Curve], texts: str) -> tuple[str, dict[str, str]]:
    """The page and its plots by file name. In `texts` a line `<!-- curve NAME -->` is where a curve goes.

    Raises ValueError for a curve that has no place in the texts.
    """
    left, plots, lines = set(curves), dict[str, str](), []
    for line in texts.splitlines():
        if not line.startswith("<!-- curve "):
            lines.append(line)
            continue
        name = line.removeprefix("<!-- curve ").removesuffix(" -->")
        curve = curves.get(name)
        if curve is None:
            lines.append("Not measured yet.")
            continue
        plots[f"{name}.svg"] = draw(curve.figures, curve.size)
        lines += [f"![{name.replace('-', ' ')}](curves/{name}.svg)", "", *_table(curve)]
        left.discard(name)
    if left:
        raise ValueError(f"texts.md has no place for {', '.join(sorted(left))}")
    return "\n".join([*lines, ""]), plots


def _table(curve: Curve) -> list[str]:
    sizes = sorted({x for found in curve.figures.values() for x, _ in found})
    lines = [
        f"| {curve.size} | {' | '.join(f'{x:,.0f}' for x in sizes)} | growth |",
        f"|---|{'---:|' * len(sizes)}---:|",
    ]
    for figure, found in curve.figures.items():
        by_size = dict(found)
        cells = [_number(by_size[x]) if x in by_size else "" for x in sizes]
        exponent = growth(found)
        grows = "" if exponent is None else f"{max(exponent, 0.0):.2f}"
        lines.append(
            f"| {figure} | {' | '.join(cells)} | {f'**{grows}**' if exponent and exponent > AS_FAST else grows} |"
        )
    load = ", ".join(f"{each:g}" for each in curve.machine["load"])
    return [*lines, "", f"Load of the machine at the end (1, 5, 15 minutes): {load}."]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def write() -> None:
    page, plots = render(points.load(), TEXTS.read_text())
    PLOTS.mkdir(exist_ok=True)
    for name, plot in plots.items():
        (PLOTS / name).write_text(plot)
    PAGE.write_text(page)

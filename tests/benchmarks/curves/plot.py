"""A curve as a small SVG: both axes logarithmic, so that a straight line at 45 degrees is cost in step with size."""

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 64, 216, 16, 44
# Distinct for those who do not see red and green apart (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#f0e442")

Points = Sequence[tuple[float, float]]


def draw(figures: Mapping[str, Points], size: str) -> str:
    """The whole document; values of 0 are left out, as a logarithm has no place for them."""
    lines = {name: [(x, y) for x, y in sorted(points) if y > 0] for name, points in figures.items()}
    lines = {name: points for name, points in lines.items() if points}
    across = _Axis([x for points in lines.values() for x, _ in points], LEFT, WIDTH - RIGHT)
    up = _Axis([y for points in lines.values() for _, y in points], HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"'
        ' font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
    ]
    for decade in across.decades():
        x = across.place(decade)
        parts.append(f'<path d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#dddddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{short(decade)}</text>')
    for decade in up.decades():
        y = up.place(decade)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#dddddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{short(decade)}</text>')
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">{escape(size)}</text>')
    for number, (name, points) in enumerate(lines.items()):
        parts += _line(name, [(across.place(x), up.place(y)) for x, y in points], number)
    return "\n".join([*parts, "</svg>", ""])


def _line(name: str, places: Points, number: int) -> Iterable[str]:
    colour = COLOURS[number % len(COLOURS)]
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    yield f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for x, y in places:
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'
    at = TOP + 14 + 18 * number
    yield f'<path d="M{WIDTH - RIGHT + 12} {at - 4}h16" stroke="{colour}" stroke-width="2"/>'
    yield f'<text x="{WIDTH - RIGHT + 34}" y="{at}">{escape(name)}</text>'


class _Axis:
    """Whole decades around the values, from one pixel to another."""

    def __init__(self, values: Sequence[float], begin: float, end: float) -> None:
        self._low = math.floor(math.log10(min(values)) + 1e-9)
        self._high = max(self._low + 1, math.ceil(math.log10(max(values)) - 1e-9))
        self._begin, self._end = begin, end

    def decades(self) -> list[float]:
        return [10.0**n for n in range(self._low, self._high + 1)]

    def place(self, value: float) -> float:
        share = (math.log10(value) - self._low) / (self._high - self._low)
        return self._begin + share * (self._end - self._begin)


def short(value: float) -> str:
    """A power of ten as people write it: 10 k, 1 M."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:g} {letter}"
    return f"{value:g}"

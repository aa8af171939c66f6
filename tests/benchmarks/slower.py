"""What got slower: this run's rows beside the committed figures.

Rows of CPU are compared as multiples of the bare server's work in their own run: a slower machine slows both. Rows
without bare work of their own are held against that of the small Produce. A busy machine does not slow both alike
(requests pile up, and the bare server takes more of them in a turn: 2.6 µs each instead of 4.6), so there only
bytecodes are compared, which nothing changes but the code and the version of Python. Nor does another interpreter:
the bare server is nearly all C and system calls, the broker nearly all Python. So multiples count only where a loop of
plain Python takes as long, beside bare work, as it did in the committed run. Times of the whole machine are not
compared.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

COMMITTED = Path(__file__).with_name("figures.json")
PART, YARDSTICK = "broker", "Produce 279 B, 50 under way"
PACE, PACE_UNIT = "a thousand steps of plain Python", "µs alone"
TOLERATED = 1.1
COUNTED = "counts"
COUNT_TOLERATED = 1.02

Figures = Mapping[str, Sequence[Mapping[str, Any]]]
"""The rows of each part, as build/bench.json has them."""


def ratios(figures: Figures) -> dict[str, float]:
    """Each row of CPU µs as a multiple of bare work; empty without the bare server's row."""
    rows = {row["what"]: row for row in figures.get(PART, ())}
    yardstick = rows.get(YARDSTICK, {}).get("ceiling")
    if not yardstick:
        return {}
    return {what: row["value"] / (row["ceiling"] or yardstick) for what, row in rows.items() if row["unit"] == "µs"}


def pace(figures: Figures) -> float | None:
    """Plain Python as a multiple of bare work; None where one of them was not measured."""
    rows = {row["what"]: row for row in figures.get(PART, ())}
    if PACE not in rows or not rows.get(YARDSTICK, {}).get("ceiling"):
        return None
    return float(rows[PACE]["value"] / rows[YARDSTICK]["ceiling"])


def is_other_interpreter(now: Figures, before: Figures) -> bool:
    """Whether plain Python took over a tenth more or less, beside bare work, than in the committed run."""
    found, known = pace(now), pace(before)
    return found is not None and known is not None and not 1 / TOLERATED <= found / known <= TOLERATED


def slower(now: Figures, before: Figures) -> list[str]:
    """One line for each row whose ratio grew by more than a tenth, and for each that is no longer measured."""
    found, known = ratios(now), ratios(before)
    if not found:
        return []
    return _worse(found, known, TOLERATED, "no longer measured", "{:.1f} x bare work, was {:.1f} x")


def dearer(now: Figures, before: Figures) -> list[str]:
    """One line for each request that takes over a fiftieth more bytecodes, or is no longer counted.

    Counts of another version of Python are not comparable.
    """
    found, known = _counts(now, before), _counts(before, now)
    return _worse(found, known, COUNT_TOLERATED, "no longer counted", "{:,.0f} bytecodes, was {:,.0f}")


def _worse(
    found: Mapping[str, float], known: Mapping[str, float], tolerated: float, missing: str, grown: str
) -> list[str]:
    """One line for each row that is `missing`, then for each that has `grown` by more than is tolerated."""
    lines = [f"{what}: {missing}" for what in known if what not in found]
    for what, now in found.items():
        if what in known and now > tolerated * known[what]:
            lines.append(f"{what}: {grown.format(now, known[what])} ({now / known[what] - 1:.0%} more)")
    return lines


def _counts(of: Figures, beside: Figures) -> dict[str, float]:
    """The counts of `of`, if `beside` has some of the same version of Python."""
    versions = {row["note"] for row in beside.get(COUNTED, ())}
    return {row["what"]: row["value"] for row in of.get(COUNTED, ()) if row["note"] in versions}


def report(now: Figures, before: Figures, *, is_busy: bool) -> tuple[str, bool]:
    """Return what was held against what, with a line for each row that is worse, and whether one is."""
    text: list[str] = []
    counted = len(_counts(now, before))
    if counted:
        worse = dearer(now, before)
        verdict = "these take more:" if worse else "none takes more"
        text += [f"compared with {COMMITTED.name}: {counted} counts of bytecodes; {verdict}", *_indented(worse)]
    else:
        worse = []
    if YARDSTICK in ratios(now) and YARDSTICK in ratios(before):
        slow = slower(now, before)
        least = f"{YARDSTICK}: {ratios(now)[YARDSTICK]:.1f} x, was {ratios(before)[YARDSTICK]:.1f} x"
        compared = (
            f"compared with {COMMITTED.name}: CPU of {len(ratios(now))} requests, as multiples of the bare server's"
        )
        verdict = "these are slower by more than a tenth:" if slow else "none is slower by more than a tenth"
        text += [f"{compared} in the same run ({least}); {verdict}", *_indented(slow)]
        if is_busy:
            text.append("  the machine was busy when this began, so the multiples decide nothing: measure them again")
        elif is_other_interpreter(now, before):
            text.append(
                f"  plain Python takes {pace(now):.1f} x bare work, was {pace(before):.1f} x: another machine or build"
                " of Python, so the multiples decide nothing"
            )
        else:
            worse = worse + slow
    if not text:
        text.append(f"nothing is compared: neither {PART} nor {COUNTED} was measured, or no such figures are committed")
    return "\n".join(text), bool(worse)


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def committed() -> Figures:
    """The figures of the last run that was kept; empty if there is none."""
    figures: Figures = json.loads(COMMITTED.read_text()) if COMMITTED.exists() else {}
    return figures


def keep(figures: Figures, *, is_busy: bool) -> list[str]:
    """Make these the committed figures, and return which parts they are; others stay as they are.

    What a busy machine measured is not kept, but counts are.
    """
    kept = [part for part in (PART, COUNTED) if part in figures and not (is_busy and part == PART)]
    together = {**committed(), **{part: figures[part] for part in kept}}
    COMMITTED.write_text(json.dumps(together, indent=1, ensure_ascii=False) + "\n")
    return kept

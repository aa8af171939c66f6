"""When samples are taken and which of them are kept: a slot is a minute since 1970; pure."""

from collections.abc import Iterable

MINUTE_MS = 60_000
# (slots back, the width of a window in slots): of each window the first sample is kept.
TIERS = ((3 * 60, 1), (2 * 24 * 60, 10), (35 * 24 * 60, 60))
# At most so many samples of a cluster remain: of 180 minutes, and of the windows that the other tiers touch.
KEPT_MAX = 180 + 271 + 793
# A read that took long is made less often: at most this share of the time is spent reading.
SHARE = 0.1


def slot_of(wall_ms: int) -> int:
    return wall_ms // MINUTE_MS


def first_of_turn(slot: int, took_s: float) -> int:
    """The first of the slots of which one sample is taken, where the last one took so long.

    Of them all, not in the first alone: whoever is busy then looks a moment later.
    """
    every = max(1, -(-round(took_s * 1000 / SHARE) // MINUTE_MS))
    return slot - slot % every


def surplus(slots: Iterable[int], now: int) -> list[int]:
    """The slots that are dropped: older than all tiers, or not the first of their window. Those of the future stay: a
    clock that was wrong is no reason to lose what others wrote."""
    dropped: list[int] = []
    seen: set[tuple[int, int]] = set()
    for slot in sorted(set(slots)):
        width = next((width for back, width in TIERS if now - slot < back), 0)
        window = (width, slot // width) if width else None
        if window is None or window in seen:
            dropped.append(slot)
        else:
            seen.add(window)
    return dropped

"""What an unknown key is probably meant to be."""

import difflib
from collections.abc import Iterable

# Looking takes milliseconds, and a client may name thousands: only so many are looked up, and none that is longer.
GUESSES_MAX = 5
CHARS_MAX = 100


def nearest(name: str, among: Iterable[str], before: int = 0) -> str:
    """Return ` (nearest: KEY)`; "" where no key is near.

    :param before: how many unknown keys were named before it.
    """
    if before >= GUESSES_MAX or len(name) > CHARS_MAX:
        return ""
    near = difflib.get_close_matches(name, list(among), n=1, cutoff=0.6)
    return f" (nearest: {near[0]})" if near else ""

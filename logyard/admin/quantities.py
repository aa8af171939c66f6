"""Numbers for people: sizes and times with a unit, counts with a noun."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def whole(text: str | None, otherwise: int) -> int:
    """A whole number that somebody has written into a setting; `otherwise` where it is none, as brokers do."""
    try:
        return int(text or otherwise)
    except ValueError:
        return otherwise


def size(count: float) -> str:
    """Bytes with a unit: `512 B`, `1.5 MiB`, `210 GiB`; as the page writes them (format.js)."""
    left, unit = abs(float(count)), 0
    while left >= 1024 and unit < len(_UNITS) - 1:
        left /= 1024
        unit += 1
    text = f"{left:.0f}" if unit == 0 or left >= 100 else f"{left:.1f}"
    return f"{'-' if count < 0 else ''}{text} {_UNITS[unit]}"


def duration(seconds: float) -> str:
    """Seconds in the unit that fits: `77 s`, `10 min`, `2.5 h`, `3.1 days`; as the page writes them (format.js)."""
    if seconds < 1:
        return "under a second"
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"


def plural(count: int, one: str, many: str = "") -> str:
    """`1 topic`, `2,000 topics`; `many` if it is not `one` with an s."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"

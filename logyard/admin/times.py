"""Times and durations that people type, in ISO 8601, as milliseconds."""

from datetime import timezone


def parse_time_ms(text: str) -> int:
    """Parse a time such as `2026-11-21T10:00:00.000` into ms since 1970; UTC if it has no zone.

    A day alone is its midnight, and a time before 1970 is 1970: to brokers negative numbers are the ends of a log.
    Raises ValueError.
    """
    import pendulum  # 0.1 s: for the commands that are given a time

    found = (
        pendulum.parse(text, exact=True, tz=timezone.utc)
        if text[:1].isdigit() and len(text) >= len("20261121")
        else None
    )
    if isinstance(found, pendulum.Date) and not isinstance(found, pendulum.DateTime):
        found = pendulum.datetime(found.year, found.month, found.day)
    if not isinstance(found, pendulum.DateTime):
        raise ValueError(f"not a time: {text!r}")
    return max(round(found.timestamp() * 1000), 0)


def parse_duration_ms(text: str) -> int:
    """Parse a duration such as `P1DT2H3M4.5S`, or one with a minus before it, into ms. Raises ValueError.

    As in Kafka's tools, a day is 24 hours, and weeks, months and years are not accepted: `P1M` is not a minute.
    """
    import pendulum

    length = text.removeprefix("-")
    try:
        found = pendulum.parse(length) if any(character.isdigit() for character in length) else None
    except OverflowError:
        found = None
    if not isinstance(found, pendulum.Duration) or found.years or found.months or "W" in length:
        raise ValueError(f"not a duration: {text!r}")
    return round(found.total_seconds() * 1000) * (-1 if text != length else 1)

"""Times and durations as people type them."""

import pytest

from logyard.admin.times import parse_duration_ms, parse_time_ms


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1970-01-01T00:00:01.500", 1500),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T01:00:00.000+0100", 0),
        ("1970-01-01T00:00:00.000Z", 0),
        ("1970-01-02", 86_400_000),
        ("1970-01-01 00:01", 60_000),
        ("2026-11-21T10:00:00.123", 1_795_255_200_123),
        ("1969-12-31T23:59:59.999", 0),  # -1 is the end of a log
        ("0001-01-01T00:00:00+23:59", 0),
    ],
)
def test_times(text: str, milliseconds: int) -> None:
    assert parse_time_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "now", "yesterday", "10:00", "2026", "2026-11", "P1D", "2026-11-21T25:00:00"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError):
        parse_time_ms(text)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("P1DT2H3M4.5S", 93_784_500), ("-PT1S", -1000), ("PT90M", 5_400_000), ("P10000D", 864_000_000_000), ("PT0S", 0)],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "1D", "P1M", "P1Y", "P1W", "--P1D", "2026-11-21", "now", "P1000000000D"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError):
        parse_duration_ms(text)

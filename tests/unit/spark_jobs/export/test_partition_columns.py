import numpy as np
import pytest

from logyard.spark_jobs.export.partition_columns import BadPartitioning, directories, parse, values_of

DAY_MS = 86_400_000


def places(*texts: str, times: list[int]) -> list[str]:
    found, rows = directories(parse(texts), "t", np.array(times, np.int64))
    return [found[row] for row in rows.tolist()]


def test_a_row_goes_where_its_columns_say() -> None:
    times = [0, DAY_MS - 1, DAY_MS, -1, 1_700_000_000_123]
    assert places("date", times=times) == [
        "date=1970-01-01",
        "date=1970-01-01",
        "date=1970-01-02",
        "date=1969-12-31",
        "date=2023-11-14",
    ]
    assert places("topic", "date", times=[0]) == ["topic=t/date=1970-01-01"]
    assert places("topic", times=[0, DAY_MS]) == ["topic=t", "topic=t"]
    assert places("hour=%Y-%m-%dT%H", "minute=%M", times=[3_600_000 + 61_000]) == ["hour=1970-01-01T01/minute=01"]
    assert places("at=%H:%M", times=[0]) == ["at=00%3A00"], "as Hive escapes it"
    assert places("month=%Y-%m", "topic", times=[40 * DAY_MS, 0, 40 * DAY_MS]) == [
        "month=1970-02/topic=t",
        "month=1970-01/topic=t",
        "month=1970-02/topic=t",
    ]


def test_a_directory_tells_the_values_as_they_were() -> None:
    (found,) = places("at=%Y/%m %H:%M=100%%", "topic", times=[0])
    assert found == "at=1970%2F01 00%3A00%3D100%25/topic=t"
    assert values_of(found) == {"at": "1970/01 00:00=100%", "topic": "t"}


def test_a_time_that_no_calendar_has_goes_to_hives_default() -> None:
    assert places("date", times=[2**62]) == ["date=__HIVE_DEFAULT_PARTITION__"]


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["day"], "topic, date or NAME=PATTERN is expected"),
        (["offset=%Y"], "NAME none of the export's columns"),
        (["topic=%Y"], "NAME none of the export's columns"),
        (["day=%Q"], "a pattern of %Y %y %m"),
        (["day=x"], "a pattern of"),
        (["date", "date=%Y"], "date is given twice"),
    ],
)
def test_what_is_no_partition_column_is_said(texts: list[str], words: str) -> None:
    with pytest.raises(BadPartitioning, match=words):
        parse(texts)

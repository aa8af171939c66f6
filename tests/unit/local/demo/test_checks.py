import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logyard.local.demo import checks
from logyard.local.demo.loader import Acknowledged
from logyard.local.errors import LocalError


def table(*rows: tuple[int, int, bytes | None, bytes]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=checks.COLUMNS)


SENT = table((0, 0, b"a", b"1"), (0, 1, b"b", b"2"), (0, 2, b"a", b"3"), (0, 3, b"b", b"4"), (1, 0, b"c", b"5"))


def places(found: pd.DataFrame) -> list[tuple[int, int]]:
    return list(zip(found["partition"].tolist(), found["offset"].tolist(), strict=True))


def test_what_was_acknowledged_stands_at_its_place() -> None:
    acknowledged = Acknowledged(np.array([1, 0, 0], np.int32), np.array([7, 1, 0], np.int64))
    found = checks.acknowledged_table(acknowledged, [b"x", b"y", b"z"], [b"1", b"2", b"3"])
    assert places(found) == [(0, 0), (0, 1), (1, 7)]
    assert found["key"].tolist() == [b"z", b"y", b"x"]


def test_two_events_at_one_place_are_an_error() -> None:
    acknowledged = Acknowledged(np.array([0, 0], np.int32), np.array([4, 4], np.int64))
    with pytest.raises(LocalError, match="offset 4 of partition 0"):
        checks.acknowledged_table(acknowledged, None, [b"1", b"2"])


def test_compaction_leaves_the_last_of_each_key_and_the_active_segment() -> None:
    assert places(checks.expected_after_compaction(SENT, {0: 4, 1: 1})) == [(0, 2), (0, 3), (1, 0)]
    # Offset 3 is in the active segment: it stays, and does not supersede offset 1.
    assert places(checks.expected_after_compaction(SENT, {0: 3, 1: 0})) == [(0, 1), (0, 2), (0, 3), (1, 0)]
    assert places(checks.expected_after_compaction(SENT, {0: 0, 1: 0})) == places(SENT)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from([b"a", b"b", b"c"])), max_size=40),
    st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(0, 20)),
)
def test_expected_against_a_plain_loop(events: list[tuple[int, bytes]], ends: tuple[int, int, int]) -> None:
    offsets = [0, 0, 0]
    rows = []
    for index, (partition, key) in enumerate(events):
        rows.append((partition, offsets[partition], key, b"%d" % index))
        offsets[partition] += 1
    last: dict[tuple[int, bytes], int] = {}
    for partition, offset, key, _ in rows:
        if offset < ends[partition]:
            last[partition, key] = offset
    wanted = sorted((p, o) for p, o, k, _ in rows if o >= ends[p] or last[p, k] == o)
    assert places(checks.expected_after_compaction(table(*rows), dict(enumerate(ends)))) == wanted


def test_equal_tables_do_not_differ() -> None:
    assert not checks.compare(SENT, SENT.sample(frac=1, random_state=1))
    keyless = table((0, 0, None, b"1"))
    assert not checks.compare(keyless, keyless.copy())


def test_every_kind_of_difference_is_counted() -> None:
    found = table((0, 0, b"a", b"1"), (0, 1, b"b", b"X"), (0, 2, b"?", b"3"), (0, 9, b"z", b"9"), (1, 0, b"c", b"5"))
    difference = checks.compare(SENT, found)
    assert (difference.missing, difference.unexpected, difference.altered) == (1, 1, 2)
    assert difference
    assert "partition 0 offset 1" in str(difference)


def test_a_record_that_is_there_twice_is_unexpected() -> None:
    assert checks.compare(SENT, pd.concat([SENT, SENT.iloc[:1]])).unexpected == 1


def test_a_lost_key_is_an_alteration() -> None:
    assert checks.compare(SENT.iloc[:1], table((0, 0, None, b"1"))).altered == 1


def test_the_checksum_sees_everything_but_the_order_of_rows() -> None:
    base = checks.checksum(SENT)
    assert checks.checksum(SENT.sample(frac=1, random_state=3)) == base
    for row, column, value in [(0, "partition", 5), (0, "offset", 99), (0, "key", None), (0, "value", b"0")]:
        changed = SENT.copy()
        changed.loc[row, column] = value
        assert checks.checksum(changed) != base
    assert checks.checksum(table((0, 0, b"ab", b"c"))) != checks.checksum(table((0, 0, b"a", b"bc")))

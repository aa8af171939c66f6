"""The partition that coordinates a group or a transactional id."""

import pytest

from logyard.broker.metadata.coordinators import partition_for


@pytest.mark.parametrize(
    ("name", "java_hash"),
    [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", -(2**31)), ("zzzzzz", -685785664)],
)
def test_partition_is_the_absolute_java_hash(name: str, java_hash: int) -> None:
    expected = 0 if java_hash == -(2**31) else abs(java_hash) % 50
    assert [partition_for(name, 50) for _ in range(2)] == [expected] * 2


def test_a_long_name_is_hashed_as_a_short_one() -> None:
    """Only that of a short one is kept."""
    power, hashed = 1, 0
    for _ in range(129):
        hashed, power = hashed + 97 * power, power * 31
    signed = (hashed + 2**31) % 2**32 - 2**31
    assert partition_for("a" * 129, 50) == abs(signed) % 50

"""The partition that coordinates a group or a transactional id."""

import pytest

from logyard.broker.metadata.coordinators import partition_for


@pytest.mark.parametrize(
    ("name", "java_hash"),
    [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", -(2**31)), ("zzzzzz", -685785664)],
)
def test_partition_is_the_absolute_java_hash(name: str, java_hash: int) -> None:
    expected = 0 if java_hash == -(2**31) else abs(java_hash) % 50
    assert partition_for(name, 50) == expected

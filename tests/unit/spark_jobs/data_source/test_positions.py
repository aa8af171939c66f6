"""How far a stream is, as its checkpoint has it."""

from typing import Any

import pytest

from logyard.broker.model import TopicPartition
from logyard.spark_jobs.data_source.options import BadOption
from logyard.spark_jobs.data_source.positions import Position, offset_of, positions

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_offsets_go_there_and_back() -> None:
    ends = {T1: Position("x", 4, 2), T0: Position("x", 7), TopicPartition("a-b", 0): Position(None, 0)}
    assert positions(offset_of(ends)) == ends
    assert list(offset_of(ends)["topics"]) == ["a-b", "t"]


@pytest.mark.parametrize("foreign", [{"t": {"0": 42, "1": 7}}, {"topics": {"t": {"0": 42}}}, {}], ids=str)
def test_a_checkpoint_of_another_source_is_refused(foreign: dict[str, Any]) -> None:
    """That of Spark's Kafka source, say, after the format was changed: all would be read again from the first one."""
    with pytest.raises(BadOption, match="the checkpoint holds offsets that are not of this source"):
        positions(foreign)

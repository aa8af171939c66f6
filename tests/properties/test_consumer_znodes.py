"""/consumers with any content: nothing that stands there harms who reads it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logyard.broker.errors import CorruptData
from logyard.broker.model import TopicPartition
from logyard.broker.znodes import consumers

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(INT64)
def test_every_offset_comes_back(offset: int) -> None:
    assert consumers.decode_offset(consumers.encode_offset(offset), "/p") == offset


@given(st.binary(max_size=40) | st.text(st.sampled_from("+-0123456789 _٤"), max_size=24).map(str.encode))
def test_an_offset_or_a_complaint(data: bytes) -> None:
    try:
        offset = consumers.decode_offset(data, "/p")
    except CorruptData:
        return
    assert -(2**63) <= offset < 2**63
    assert offset == int(data.decode())


@given(st.text(max_size=20), INT64)
def test_a_group_never_leads_out_of_consumers(group: str, partition: int) -> None:
    path = consumers.partition_path(group, consumers.OFFSETS, TopicPartition("t", partition))
    if consumers.is_path(path):
        assert path.startswith("/consumers/")
        assert not {"", ".", ".."} & set(path.split("/")[1:])
        path.encode()


@pytest.mark.parametrize("length", [1, 32_767])
def test_huge_names(length: int) -> None:
    assert consumers.is_path(consumers.partition_path("g" * length, consumers.OFFSETS, TopicPartition("t", 0)))

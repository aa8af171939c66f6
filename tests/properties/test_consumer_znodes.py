"""/consumers with any content: readers either parse it or report a problem."""

import json

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


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
)
KEYS = {"subscription": JSON, "pattern": JSON, "version": JSON}


@given(st.binary(max_size=60) | (JSON | st.fixed_dictionaries({}, optional=KEYS)).map(lambda v: json.dumps(v).encode()))
def test_a_registration_or_a_complaint(data: bytes) -> None:
    try:
        found = consumers.decode_registration(data, "/p")
    except CorruptData:
        return
    assert all(isinstance(topic, str) and isinstance(n, int) for topic, n in found.subscription.items())


@given(st.binary(max_size=60))
def test_an_owner_is_always_some_text(data: bytes) -> None:
    assert isinstance(consumers.decode_owner(data), str)


@given(st.text(max_size=20), INT64)
def test_a_group_never_leads_out_of_consumers(group: str, partition: int) -> None:
    path = consumers.partition_path(group, consumers.OFFSETS, TopicPartition("t", partition))
    if consumers.is_path(path):
        assert path.startswith("/consumers/")
        assert not {"", ".", ".."} & set(path.split("/")[1:])
        path.encode()


@pytest.mark.parametrize("length", [1, 32_767])
def test_huge_names(length: int) -> None:
    assert consumers.is_path(consumers.group_path("g" * length))

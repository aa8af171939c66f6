"""A lease on a log of very many producers: told as of one moment, and not worked out on the event loop."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from logyard.broker.leases.json_pieces import PIECE_CHARS, json_pieces
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.producers import ProducerEntry, SeenBatch
from logyard.broker.records import pauses
from tests.support.lease_world import LeaseWorld, fill

MANY = 10 * pauses.PARTS + 1


class _ThreadedWorld(LeaseWorld):
    """With threads for the work on the disk."""

    def _run(self, work: Callable[[], Any]) -> Any:
        return asyncio.ensure_future(asyncio.to_thread(work))


@pytest.fixture
def pausing() -> Iterator[list[threading.Thread]]:
    """The threads that paused, once for each pause."""
    found: list[threading.Thread] = []
    pauses.use(lambda: found.append(threading.current_thread()))
    yield found
    pauses.use(pauses.go_on)


def with_producers(log: PartitionLog, count: int) -> None:
    for number in range(count):
        log.producers.remember(ProducerEntry(number, 3, batches=(SeenBatch(7, number, 0, 1),), last_timestamp=1))


async def test_producers_are_listed_and_encoded_in_threads_with_pauses(pausing: list[threading.Thread]) -> None:
    async with _ThreadedWorld() as world:
        fill(log := world.lead(), 60)
        with_producers(log, MANY)
        pausing.clear()
        lease = await world.take("audit")
        assert [p["producer_id"] for p in lease["producers"]] == list(range(MANY))
        assert lease["producers"][2] == {
            "producer_id": 2,
            "producer_epoch": 3,
            "last_sequence": 7,
            "last_offset": 2,
            "last_timestamp": 1,
            "coordinator_epoch": -1,
            "current_txn_first_offset": -1,
        }
        assert len(pausing) >= 20, "each portion is paused after when it is listed, and when it is encoded"
        assert threading.main_thread() not in pausing


async def test_producers_are_those_of_the_moment_at_which_the_log_was_read() -> None:
    async with LeaseWorld() as world:
        fill(log := world.lead(), 60)
        with_producers(log, 3)
        end = log.log_end_offset

        def go_on() -> None:
            world.before_work = lambda: None
            fill(log, 1)
            log.producers.remember(ProducerEntry(1, 4, batches=(SeenBatch(0, end, 0, 1),), last_timestamp=1))
            log.producers.remember(ProducerEntry(9, 0, batches=(SeenBatch(0, end, 0, 1),), last_timestamp=1))

        world.before_work = go_on
        lease = await world.take("audit")
        assert lease["log_end_offset"] == end
        assert [(p["producer_id"], p["producer_epoch"]) for p in lease["producers"]] == [(0, 3), (1, 3), (2, 3)]


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        None,
        "“quoted”\n",
        {"none": [], "empty": {}, "one": [1], "deep": {"a": {"b": [True, None, {"c": ["é"]}]}}},
        {"many": [{"number": number} for number in range(MANY)], "behind": [[number] for number in range(MANY)]},
    ],
)
def test_pieces_are_the_json_of_the_value(value: Any) -> None:
    pieces = json_pieces(value)
    assert json.loads(b"".join(pieces)) == value
    assert b"\n" not in b"".join(pieces)
    assert all(len(piece) < 2 * PIECE_CHARS for piece in pieces)


def test_rows_with_lists_of_their_own_are_paused_after_by_what_is_in_them(pausing: list[threading.Thread]) -> None:
    """The list of replicas: the interpreter encoded 500 of them with 50 segments each in one step of 30 ms."""
    value = {"partitions": [{"topic": "t", "segments": [{"size": n} for n in range(50)]} for _ in range(pauses.PARTS)]}
    assert json.loads(b"".join(json_pieces(value))) == value
    assert len(pausing) >= 50

"""A copy of a topic in transactions, while brokers are killed or restarted in turn: exactly once.

`copy_while_they_are_killed(own_yard, copier)` does all of it; a copy that stalls says what each broker knows.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial

from confluent_kafka import Consumer, TopicPartition

from tests.support.lengths import IS_PROOF
from tests.support.real_cluster import RealCluster, eventually
from tests.support.transactional import WAIT_S, AnyCopier, read
from tests.support.wire_client import ask

# `make proof` copies a million.
COPIED = 1_000_000 if IS_PROOF else 20_000
BATCH = max(COPIED // 100, 200)
# The sessions of CONFIG are of six seconds.
FROZEN_S = 8.0
WRITTEN = ("source", "target", "__transaction_state", "__consumer_offsets")
OFFSET_FETCH, FIND_COORDINATOR, DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS = 9, 10, 61, 65


Strike = Callable[[RealCluster, int], AbstractContextManager[None]]
"""Does something to a broker, which is over when the block ends."""


@contextmanager
def killed(yard: RealCluster, broker: int, number: signal.Signals = signal.SIGKILL) -> Iterator[None]:
    """It is ended by that signal, and started again."""
    yard.cluster.stop_broker(broker, number)
    yield
    yard.cluster.start_broker(broker)


@contextmanager
def frozen(yard: RealCluster, broker: int) -> Iterator[None]:
    """It stands still for longer than its session, and then goes on as if it led all that it led before."""
    (pid,) = (entry["pid"] for entry in yard.description["brokers"] if entry["id"] == broker)
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(FROZEN_S)
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def copy_while_they_are_killed(
    own_yard: RealCluster, copier: AnyCopier, strike: Strike = killed, count: int = COPIED
) -> None:
    """kill -9 of VICTIMS in turn while a copier copies: exactly once.

    Or `strike` instead of kill -9. `count` records are copied.
    """
    for name in ("source", "target"):
        own_yard.create(name, 4, 3, min_insync_replicas="2")
    sent = [(str(n).encode(), f"value-{n}".encode()) for n in range(count)]
    copier.start()
    patience_s = 120 + count // 2000

    def awaited(look: Callable[[], object], what: str) -> None:
        begun = time.monotonic()
        try:
            eventually(look, what, patience_s)
        except AssertionError as problem:
            seen = "\n".join(situation(own_yard))
            raise AssertionError(f"{problem}: {copier.log[-20:]}\n{seen}") from None
        print(f"{time.strftime('%H:%M:%S')} {what}, after {time.monotonic() - begun:.1f} s")

    try:
        written = 0
        # A part of the records for each: somebody is killed while that part is copied.
        for part, victim in enumerate(VICTIMS):
            so_far = copier.transactions
            events = sent[part :: len(VICTIMS)]
            written += len(own_yard.produce("source", events, **{"queue.buffering.max.messages": 2_000_000}))
            awaited(partial(has_copied_more, copier, so_far), "the copy runs")
            broker = victim(own_yard)
            with strike(own_yard, broker):
                time.sleep(2)
            awaited(lambda: all(map(own_yard.isrs_full, WRITTEN)), f"{victim.__name__} {broker} is back")
            awaited(partial(has_copied, own_yard, written), f"all is copied after {victim.__name__}")
    finally:
        copier.stop()
        print("\n".join(copier.log))
    assert written == count
    found = Counter(message.value() for message in read(own_yard.bootstrap, "target", timeout_s=patience_s))
    missing, twice = {value for _, value in sent} - set(found), {value for value, n in found.items() if n > 1}
    assert (len(missing), len(twice), len(found)) == (0, 0, count), (
        sorted(missing)[:5],
        sorted(twice)[:5],
        copier.log,
    )


def situation(yard: RealCluster) -> list[str]:
    """What brokers know of the copy that does not go on."""

    def each(topic: str) -> list[dict[str, object]]:
        return [{"name": topic, "partition_indexes": list(range(4))}]

    asked: list[tuple[int, int, dict[str, object]]] = [
        (FIND_COORDINATOR, 2, {"key": "copier-source", "key_type": 1}),
        (FIND_COORDINATOR, 2, {"key": "copy-source", "key_type": 0}),
        (DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["copier-source"]}),
        (DESCRIBE_PRODUCERS, 0, {"topics": each("target") + each("__consumer_offsets")}),
        (OFFSET_FETCH, 7, {"group_id": "copy-source", "topics": each("source"), "require_stable": True}),
    ]
    said = []
    for address in yard.bootstrap.split(","):
        for api, version, fields in asked:
            try:
                said.append(f"{address}: {ask(address, api, version, fields)}")
            except (OSError, ValueError) as problem:
                said.append(f"{address}: api {api}: {problem!r}")
    return said


def has_copied_more(copier: AnyCopier, transactions: int) -> bool:
    return copier.transactions > transactions


def has_copied(yard: RealCluster, count: int) -> bool:
    """Whether the copier's committed offsets are behind so many records."""
    with closing(Consumer({"bootstrap.servers": yard.bootstrap, "group.id": "copy-source"})) as consumer:
        found = consumer.committed([TopicPartition("source", p) for p in range(4)], WAIT_S)
        return bool(sum(max(place.offset, 0) for place in found) == count)


def leader_of_target(yard: RealCluster) -> int:
    return int(yard.describe("target")[0].leader)


def controller(yard: RealCluster) -> int:
    return int(eventually(lambda: (c := yard.controller()[0]) >= 0 and [c], "a controller")[0])


def coordinator(yard: RealCluster) -> int:
    """The broker that coordinates the copier's transactions."""
    fields = {"key": "copier-source", "key_type": 1}
    address = next(iter(yard.bootstrap.split(",")))
    found = eventually(lambda: (a := ask(address, FIND_COORDINATOR, 2, fields)).error_code == 0 and a, "a coordinator")
    return int(found.node_id)


def pair_of(yard: RealCluster, transactional_id: str) -> tuple[int, int]:
    """The producer id and epoch that the coordinator has for a transactional id."""
    fields = {"key": transactional_id, "key_type": 1}
    first = yard.bootstrap.split(",")[0]
    node = eventually(lambda: (a := ask(first, FIND_COORDINATOR, 2, fields)).error_code == 0 and a, "a coordinator")
    (found,) = ask(
        yard.address(node.node_id), DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [transactional_id]}
    ).transaction_states
    assert found.error_code == 0
    return found.producer_id, found.producer_epoch


# Each broker leads a partition of the target: a leader dies with the coordinator and with the controller too.
VICTIMS = (*((leader_of_target,) if IS_PROOF else ()), coordinator, controller)

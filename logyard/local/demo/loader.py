"""Loads events into topics with a stock client. All checks are based on what the brokers acknowledged."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Producer

from logyard.local.demo.dataset import Events
from logyard.local.errors import LocalError

DELIVERY_S = 120.0
REPORT_EVERY = 5_000

Advance = Callable[[int, int], None]

Reach = Mapping[str, str]
"""librdkafka's settings of the cluster's addresses and the log-in. On a secured cluster it contains a password."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Where each event went: `partitions[i]` and `offsets[i]` of the i-th event that was sent."""

    partitions: np.ndarray[Any, np.dtype[np.int32]]
    offsets: np.ndarray[Any, np.dtype[np.int64]]

    def __len__(self) -> int:
        return len(self.offsets)


def producer_config(reach: Reach) -> dict[str, str | int | float | bool]:
    """Return settings with acks=all and idempotence: each event is written once, in order, to all in-sync replicas."""
    return {
        **reach,
        "client.id": "logyard-demo",
        "acks": "all",
        "enable.idempotence": True,
        "compression.type": "lz4",
        "linger.ms": 20,
        "batch.size": 256 * 1024,
        "queue.buffering.max.messages": 200_000,
        "message.timeout.ms": int(DELIVERY_S * 1000),
        "broker.address.family": "v4",
        "log_level": 0,  # errors come with their event
    }


def load(reach: Reach, topic: str, events: Events, advance: Advance = lambda done, total: None) -> Acknowledged:
    """Send keyed events; `advance(done, total)` is called with the progress. Raises LocalError if one is refused."""
    return _send(Producer(producer_config(reach)), topic, events.values, events.keys, advance)


def load_unkeyed(reach: Reach, topic: str, values: Sequence[bytes]) -> Acknowledged:
    """Send events without keys. Raises LocalError if one is refused."""
    return _send(Producer(producer_config(reach)), topic, values, None, lambda done, total: None)


def count_refused(reach: Reach, topic: str, values: Sequence[bytes]) -> int:
    """Send events without keys to a topic that must refuse them. Returns how many were refused for that reason.

    Raises LocalError if one fails for another reason, such as a time-out.
    """
    # Without idempotence: a refused batch would leave a gap in the sequences, which the client would have to handle.
    producer = Producer({**producer_config(reach), "enable.idempotence": False})
    refused = 0
    other: list[str] = []

    def note(error: KafkaError | None, message: object) -> None:
        nonlocal refused
        if error is not None and error.code() in (KafkaError.INVALID_RECORD, KafkaError.INVALID_MSG):
            refused += 1
        elif error is not None:
            other.append(error.str())

    for value in values:
        producer.produce(topic, value=value, on_delivery=note)
        producer.poll(0)
    left = producer.flush(DELIVERY_S)
    if other or left:
        raise LocalError(
            f"events without a key were to be refused by {topic}, but: {other[0] if other else 'no answer'}"
        )
    return refused


def _send(
    producer: Producer, topic: str, values: Sequence[bytes], keys: Sequence[bytes] | None, advance: Advance
) -> Acknowledged:
    total = len(values)
    partitions = np.full(total, -1, dtype=np.int32)
    offsets = np.full(total, -1, dtype=np.int64)
    failures: list[str] = []
    done = 0

    def noting(index: int) -> Callable[[KafkaError | None, Any], None]:
        def note(error: KafkaError | None, message: Any) -> None:
            nonlocal done
            done += 1
            if error is not None:
                failures.append(error.str())
            else:
                partitions[index] = message.partition()
                offsets[index] = message.offset()

        return note

    for index, value in enumerate(values):
        _enqueue(producer, topic, value, None if keys is None else keys[index], noting(index))
        if index % REPORT_EVERY == 0:
            producer.poll(0)
            advance(done, total)
        if failures:
            break
    left = producer.flush(DELIVERY_S)
    advance(done, total)
    if failures or left:
        reason = failures[0] if failures else f"no answer within {DELIVERY_S:.0f} s"
        raise LocalError(f"{topic}: {max(len(failures), left)} of {total} events were not acknowledged: {reason}")
    return Acknowledged(partitions, offsets)


def _enqueue(producer: Producer, topic: str, value: bytes, key: bytes | None, note: Callable[..., None]) -> None:
    while True:
        try:
            producer.produce(topic, value=value, key=key, on_delivery=note)
            return
        except BufferError:  # the local queue is full: let deliveries come in
            producer.poll(0.1)
        except KafkaException as error:
            raise LocalError(f"{topic}: the client refuses an event: {error.args[0].str()}") from error

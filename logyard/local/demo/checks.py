"""Compares what a topic must have, computed with pandas from the acknowledgements, with what a stock consumer reads.

All tables have one row per record, with the columns partition, offset, key, value.
"""

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from logyard.local.demo.loader import Acknowledged, Reach
from logyard.local.errors import LocalError

PLACE = ["partition", "offset"]
COLUMNS = [*PLACE, "key", "value"]
SILENCE_S = 30.0
BATCH = 10_000


def acknowledged_table(
    acknowledged: Acknowledged, keys: Sequence[bytes] | None, values: Sequence[bytes]
) -> pd.DataFrame:
    """Return the records that were sent, with the partition and offset that were acknowledged, sorted by these.

    Raises LocalError if two records were acknowledged at the same offset: one of them is lost then.
    """
    table = pd.DataFrame(
        {
            "partition": acknowledged.partitions.astype(np.int64),
            "offset": acknowledged.offsets,
            "key": pd.Series(list(keys) if keys is not None else [None] * len(values), dtype=object),
            "value": pd.Series(list(values), dtype=object),
        }
    )
    table = table.sort_values(PLACE, ignore_index=True)
    if table.duplicated(PLACE).any():
        twice = table[table.duplicated(PLACE)].iloc[0]
        raise LocalError(f"two events were acknowledged at offset {twice['offset']} of partition {twice['partition']}")
    return table


def expected_after_compaction(sent: pd.DataFrame, ends: Mapping[int, int]) -> pd.DataFrame:
    """Return the records that compaction must leave: below each partition's end the last of each key, above it all.

    `ends[p]` is the end offset of the compacted range of partition p: the first of its active segment.
    """
    closed = sent["offset"] < sent["partition"].map(ends)
    last = sent[closed].groupby(["partition", "key"], sort=False)["offset"].transform("max")
    survives = (sent["offset"] == last.reindex(sent.index)) | ~closed
    return sent[survives].sort_values(PLACE, ignore_index=True)


@dataclass(frozen=True, slots=True)
class Difference:
    """The differences between what was found and what was expected; there is none if all are zero."""

    missing: int
    unexpected: int
    altered: int
    example: str

    def __bool__(self) -> bool:
        return bool(self.missing or self.unexpected or self.altered)

    def __str__(self) -> str:
        return f"{self.missing} missing, {self.unexpected} unexpected, {self.altered} altered; first: {self.example}"


def compare(expected: pd.DataFrame, found: pd.DataFrame) -> Difference:
    """Compare the records by partition and offset; a record that is there twice is unexpected too."""
    merged = expected.merge(found, on=PLACE, how="outer", suffixes=("_expected", "_found"), indicator="side")
    missing = merged["side"] == "left_only"
    unexpected = merged["side"] == "right_only"
    repeated = int(found.duplicated(PLACE).sum())
    both = merged["side"] == "both"
    altered = both & ((merged["key_expected"] != merged["key_found"]) & ~_both_null(merged, "key"))
    altered |= both & ((merged["value_expected"] != merged["value_found"]) & ~_both_null(merged, "value"))
    wrong = merged[missing | unexpected | altered]
    example = "" if wrong.empty else _place(wrong.iloc[0])
    if repeated and not example:
        example = f"{_place(found[found.duplicated(PLACE)].iloc[0])} twice"
    return Difference(int(missing.sum()), int(unexpected.sum()) + repeated, int(altered.sum()), example)


def checksum(table: pd.DataFrame) -> str:
    """Return a digest over partition, offset, key and value of all records, in the order of offsets."""
    digest = hashlib.sha256()
    for row in table.sort_values(PLACE)[COLUMNS].itertuples(index=False, name=None):
        partition, offset, key, value = row
        for part in (str(partition).encode(), str(offset).encode(), key, value):
            digest.update(b"-" if part is None else str(len(part)).encode() + b":" + part)
    return digest.hexdigest()


def read_topic(reach: Reach, topic: str) -> pd.DataFrame:
    """Read all records of the topic with a stock consumer, which checks the CRCs.

    Raises LocalError if the client or the consumer reports an error, or if nothing arrives for half a minute.
    """
    consumer = Consumer(
        {
            **reach,
            "group.id": "logyard-demo-check",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "auto.offset.reset": "error",
            "fetch.message.max.bytes": 8 << 20,
            "broker.address.family": "v4",
            "log_level": 0,
        }
    )
    try:
        return _read_all(consumer, topic)
    except KafkaException as error:
        raise LocalError(f"reading {topic}: {error.args[0].str()}") from error
    finally:
        consumer.close()


def _read_all(consumer: Consumer, topic: str) -> pd.DataFrame:
    found = consumer.list_topics(topic, timeout=SILENCE_S).topics[topic]
    if found.error is not None or not found.partitions:
        raise LocalError(f"topic {topic} cannot be read: {found.error or 'it has no partitions'}")
    starts = []
    for partition in found.partitions:
        low, _high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=SILENCE_S)
        starts.append(TopicPartition(topic, partition, low))
    consumer.assign(starts)
    rows: list[tuple[int, int, bytes | None, bytes | None]] = []
    open_partitions = set(found.partitions)
    heard = time.monotonic()
    while open_partitions:
        messages = consumer.consume(BATCH, timeout=1.0)
        if messages:
            heard = time.monotonic()
        elif time.monotonic() - heard > SILENCE_S:
            raise LocalError(
                f"reading {topic}: nothing came for {SILENCE_S:.0f} s from partitions {sorted(open_partitions)}"
            )
        for message in messages:
            error = message.error()
            if error is None:
                rows.append((message.partition(), message.offset(), message.key(), message.value()))
            elif error.code() == KafkaError._PARTITION_EOF:
                open_partitions.discard(message.partition())
            elif not error.retriable():
                raise LocalError(f"reading {topic}: {error.str()}")
    return pd.DataFrame(rows, columns=COLUMNS).sort_values(PLACE, ignore_index=True)


def _both_null(merged: pd.DataFrame, column: str) -> Any:
    return merged[f"{column}_expected"].isna() & merged[f"{column}_found"].isna()


def _place(row: Any) -> str:
    return f"partition {row['partition']} offset {row['offset']}"

"""The records of `__transaction_state` as kafka-dump-log --transaction-log-decoder prints them (TransactionLog.scala).

Values of version 0, which is what ZooKeeper-mode brokers write. A transaction's partitions are printed in the order
in which they were written; Kafka's tool prints them in the order of a hash set.
"""

from typing import Any

from logyard.cli.dump_log.fields import Field, Reader, Unreadable, present

_STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
_KEY = (Field("transactionalId", "string"),)
_TOPIC = (Field("topic", "string"), Field("partitions", "int32", many=True))
_VALUE = (
    Field("producerId", "int64"),
    Field("producerEpoch", "int16"),
    Field("timeoutMs", "int32"),
    Field("status", "int8"),
    Field("topics", _TOPIC, many=True),
    Field("lastUpdate", "int64"),
    Field("start", "int64"),
)


def decode(offset: int, key: bytes | None, value: bytes | None) -> tuple[str, str | None]:
    """Return the text for key and payload of a record. Raises ValueError if there is no key."""
    key = present(key, offset, "transaction log")
    try:
        reader = Reader(key)
        version = reader.integer("int16")
        if version != 0:
            return f"unknown::version={version}", None
        shown = f"transaction_metadata::transactionalId={reader.read(_KEY, version)['transactionalId']}"
        return shown, "<DELETE>" if value is None else _value(value)
    except Unreadable as problem:
        return f"Error at offset {offset}, skipping. {problem}", None


def _value(data: bytes) -> str:
    reader = Reader(data)
    version = reader.integer("int16")
    if version != 0:
        raise Unreadable(f"version {version} is not supported")
    found: dict[str, Any] = reader.read(_VALUE, version)
    if not 0 <= found["status"] < len(_STATES):
        raise Unreadable(f"state {found['status']} is not known")
    partitions = [f"{topic['topic']}-{number}" for topic in found["topics"] for number in topic["partitions"]]
    return (
        f"producerId:{found['producerId']},producerEpoch:{found['producerEpoch']},state={_STATES[found['status']]},"
        f"partitions=[{','.join(partitions)}],txnLastUpdateTimestamp={found['lastUpdate']},"
        f"txnTimeoutMs={found['timeoutMs']}"
    )

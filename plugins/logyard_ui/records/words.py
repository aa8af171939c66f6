"""The records of the brokers' own topics in words: `__consumer_offsets` and `__transaction_state`. Pure."""

from datetime import datetime, timezone

from logyard.broker.errors import CorruptData
from logyard.broker.groups import record_format as groups
from logyard.broker.transactions import record_format as transactions
from logyard.operators.contents.decoding import Shown

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
_NAMED = 20


def in_words(topic: str, key: bytes | None, value: bytes | None) -> tuple[Shown, Shown | None] | None:
    """Key and value; None where the topic is another's, or the record is not of a known kind."""
    try:
        told = (
            _of_groups(key, value)
            if topic == OFFSETS
            else _of_transactions(key, value)
            if topic == TRANSACTIONS
            else None
        )
    except (CorruptData, ValueError):
        return None
    if told is None:
        return None
    about, says = told
    return (
        Shown("words", about, len(key or b"")),
        None if value is None else Shown("words", says, len(value)),
    )


def _of_groups(key: bytes | None, value: bytes | None) -> tuple[str, str] | None:
    found = groups.decode_key(key) if key is not None else None
    if isinstance(found, groups.OffsetKey):
        about = f"group {found.group_id}, partition {found.topic}-{found.partition}"
        if value is None:
            return about, ""
        commit = groups.decode_offset(found, value)
        metadata = f", metadata {commit.metadata!r}" if commit.metadata else ""
        return about, f"committed offset {commit.offset} at {_time(commit.commit_ms)}{metadata}"
    if isinstance(found, groups.GroupKey):
        about = f"group {found.group_id}"
        if value is None:
            return about, ""
        group = groups.decode_group(found.group_id, value, 0)
        named = ", ".join(member.client_id for member in list(group.members.values())[:_NAMED])
        members = f"{len(group.members)} members: {named}" if group.members else "no members"
        return about, f"generation {group.generation}, protocol {group.protocol or 'none'}, {members}"
    return None


def _of_transactions(key: bytes | None, value: bytes | None) -> tuple[str, str] | None:
    name = transactions.decode_key(key) if key is not None else None
    if name is None:
        return None
    about = f"transactional id {name}"
    if value is None:
        return about, ""
    stored = transactions.decode_value(value)
    partitions = sorted(stored.partitions)
    named = ", ".join(str(tp) for tp in partitions[:_NAMED]) + (" …" if len(partitions) > _NAMED else "")
    state = stored.state.name.replace("_", " ").lower()
    return about, (
        f"{state}, producer {stored.producer_id} (epoch {stored.epoch}), time-out {stored.timeout_ms} ms, "
        f"partitions: {named or 'none'}, updated at {_time(stored.updated_ms)}"
    )


def _time(milliseconds: int) -> str:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, timezone.utc).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return str(milliseconds)

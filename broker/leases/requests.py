"""The JSON bodies that jobs send to the lease routes, parsed into values (docs/leases.md).

A body that does not parse is refused with `invalid_request`, whose message names the field. Unknown keys are ignored.
This module does not use leases or logs.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from logyard.broker.leases.book import TTL_MS_DEFAULT, TTL_MS_MAX, TTL_MS_MIN, LeaseError, Purpose
from logyard.broker.model import TopicPartition
from logyard.broker.portions import portions

Json = Mapping[str, Any]

LONG_MAX = 2**63 - 1
PARTITION_MAX = 2**31 - 1
RUN_ID_CHARACTERS_MAX = 200
REASON_CHARACTERS_MAX = 200
# To read a group takes as long as to look through so many base offsets.
_GROUP_COST = 50

_DIGEST = re.compile(r"[0-9a-f]{64}")


def invalid_request(message: str) -> LeaseError:
    """Return the error for a request that does not parse; the message names the field and what is expected."""
    return LeaseError("invalid_request", 400, message)


@dataclass(frozen=True, slots=True)
class GrantRequest:
    """POST /leases."""

    tp: TopicPartition
    run_id: str
    purpose: Purpose
    ttl_ms: int

    @classmethod
    def read(cls, body: Json) -> "GrantRequest":
        purpose = _text(body, "purpose", 20)
        if purpose not in {known.value for known in Purpose}:
            raise invalid_request(f"purpose: compact, audit or export, not {purpose!r}")
        return cls(
            TopicPartition(_text(body, "topic", 249), _number(body, "partition", 0, PARTITION_MAX)),
            _text(body, "run_id", RUN_ID_CHARACTERS_MAX),
            Purpose(purpose),
            _number(body, "ttl_ms", TTL_MS_MIN, TTL_MS_MAX, TTL_MS_DEFAULT),
        )


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    """POST /leases/{id}/heartbeat; if `ttl_ms` is None the time to live stays as it was."""

    generation: int
    ttl_ms: int | None

    @classmethod
    def read(cls, body: Json) -> "HeartbeatRequest":
        ttl_ms = None if body.get("ttl_ms") is None else _number(body, "ttl_ms", TTL_MS_MIN, TTL_MS_MAX)
        return cls(_number(body, "generation", 0), ttl_ms)


def reason_of(body: Json) -> str:
    """Return the reason of a request as one line, "" if there is none."""
    given = body.get("reason")
    if given is not None and not isinstance(given, str):
        raise invalid_request(f"reason: text is needed, not {given!r}")
    return " ".join((given or "").split())[:REASON_CHARACTERS_MAX]


@dataclass(frozen=True, slots=True)
class AbortRequest:
    """POST /leases/{id}/abort."""

    generation: int
    reason: str

    @classmethod
    def read(cls, body: Json) -> "AbortRequest":
        return cls(_number(body, "generation", 0), reason_of(body) or "aborted by its run")


@dataclass(frozen=True, slots=True)
class Group:
    """Adjacent leased segments (base offsets), and size, digest, end and records of the part that replaces them."""

    segments: tuple[int, ...]
    size: int
    sha256: str
    last_offset: int
    records: int

    @property
    def base_offset(self) -> int:
        return self.segments[0]


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """POST /leases/{id}/commit. Whether the groups fit the lease is checked by LeasedLog.members."""

    generation: int
    leader_epoch: int
    clean_offset: int
    decision_sha256: str
    range_start: int
    range_end: int
    groups: tuple[Group, ...]
    decision: str | None = None

    @classmethod
    async def read(cls, body: Json) -> "CommitRequest":
        """Read it in turns of the event loop: a body may have tens of thousands of groups."""
        decision = _object(body, "decision")
        if not isinstance(decision.get("bytes"), str | None):
            raise invalid_request("decision.bytes: text in base64 is needed")
        request = cls(
            _number(body, "generation", 0),
            _number(body, "leader_epoch", -1),
            _number(body, "clean_offset", 0),
            _digest(decision, "decision.sha256"),
            _number(decision, "decision.range_start", 0),
            _number(decision, "decision.range_end", 0),
            await _groups(_list(body, "groups")),
            decision.get("bytes"),
        )
        if request.range_end != request.clean_offset:
            raise invalid_request(f"clean_offset {request.clean_offset} must be decision.range_end {request.range_end}")
        if request.range_start > request.range_end:
            raise invalid_request(f"decision.range_start {request.range_start} is above range_end {request.range_end}")
        return request


async def _groups(rows: Sequence[Any]) -> tuple[Group, ...]:
    groups: list[Group] = []
    async for portion in portions(rows, _cost):
        groups += [_group(row, f"groups[{number}]") for number, row in enumerate(portion, len(groups))]
    return tuple(groups)


def _cost(row: Any) -> int:
    bases = row.get("segments") if isinstance(row, dict) else None
    return _GROUP_COST + (len(bases) if isinstance(bases, list) else 0)


def _group(row: Any, name: str) -> Group:
    if not isinstance(row, dict):
        raise invalid_request(f"{name}: an object is needed")
    bases = _list(row, f"{name}.segments")
    if not bases or any(not _is_number(base, 0, LONG_MAX) for base in bases):
        raise invalid_request(f"{name}.segments: base offsets are needed, not {bases!r}")
    part = _object(row, f"{name}.part")
    return Group(
        tuple(bases),
        _number(part, f"{name}.part.size", 0),
        _digest(part, f"{name}.part.sha256"),
        _number(part, f"{name}.part.last_offset", -1),
        _number(part, f"{name}.part.records", 0),
    )


def check_digest(name: str, value: Any) -> str:
    """Return a sha256 in lower-case hex; raises LeaseError(invalid_request)."""
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise invalid_request(f"{name}: a sha256 in lower-case hex is needed, not {value!r}")
    return value


# A field is found by the last part of its name; the whole name is for the error.


def _field(body: Json, name: str) -> Any:
    return body.get(name.rpartition(".")[2])


def _digest(body: Json, name: str) -> str:
    return check_digest(name, _field(body, name))


def _is_number(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _number(body: Json, name: str, low: int, high: int = LONG_MAX, default: int | None = None) -> int:
    value = _field(body, name)
    if value is None and default is not None:
        return default
    if not _is_number(value, low, high):
        raise invalid_request(f"{name}: a whole number from {low} to {high} is needed, not {value!r}")
    number: int = value
    return number


def _text(body: Json, name: str, characters_max: int) -> str:
    value = _field(body, name)
    if not isinstance(value, str) or not 1 <= len(value) <= characters_max:
        raise invalid_request(f"{name}: text of 1 to {characters_max} characters is needed")
    return value


def _object(body: Json, name: str) -> Json:
    value = _field(body, name)
    if not isinstance(value, dict):
        raise invalid_request(f"{name}: an object is needed")
    return value


def _list(body: Json, name: str) -> Sequence[Any]:
    value = _field(body, name)
    if not isinstance(value, list):
        raise invalid_request(f"{name}: a list is needed")
    return value

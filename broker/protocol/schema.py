"""The schemas of messages with all their versions: those of kafka-python, and our own for the ones that it lacks.

Our own, in `schemas/`, are of the messages between brokers and
of delegation tokens; the others come from the pinned kafka-python. `readers.py`
and `writers.py` make the codecs from them.
"""

import importlib
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal

from logyard.broker.submodule_import import without_package_init

with without_package_init("kafka"):
    from kafka.protocol.schemas import load_json

    importlib.import_module("kafka.protocol.schemas.resources")  # load_json needs it later

ZERO_UUID: Final = uuid.UUID(int=0)
FIXED: Final[Mapping[str, tuple[str, int]]] = MappingProxyType(
    {
        "bool": ("?", 1),
        "int8": ("b", 1),
        "int16": ("h", 2),
        "uint16": ("H", 2),
        "int32": ("i", 4),
        "uint32": ("I", 4),
        "int64": ("q", 8),
        "float64": ("d", 8),
        "uuid": ("16s", 16),
    }
)
OWN_PACKAGE = "logyard.broker.protocol.schemas"

# The API keys of Kafka 3.9 in ZooKeeper mode whose schemas are here (facts §19). Not here: Envelope (58: Kafka
# advertises it, and closes the connection on it) and the KRaft-only keys.
API_NAMES: Final[Mapping[int, str]] = MappingProxyType(
    {
        0: "Produce",
        1: "Fetch",
        2: "ListOffsets",
        3: "Metadata",
        4: "LeaderAndIsr",
        5: "StopReplica",
        6: "UpdateMetadata",
        7: "ControlledShutdown",
        8: "OffsetCommit",
        9: "OffsetFetch",
        10: "FindCoordinator",
        11: "JoinGroup",
        12: "Heartbeat",
        13: "LeaveGroup",
        14: "SyncGroup",
        15: "DescribeGroups",
        16: "ListGroups",
        17: "SaslHandshake",
        18: "ApiVersions",
        19: "CreateTopics",
        20: "DeleteTopics",
        21: "DeleteRecords",
        22: "InitProducerId",
        23: "OffsetForLeaderEpoch",
        24: "AddPartitionsToTxn",
        25: "AddOffsetsToTxn",
        26: "EndTxn",
        27: "WriteTxnMarkers",
        28: "TxnOffsetCommit",
        29: "DescribeAcls",
        30: "CreateAcls",
        31: "DeleteAcls",
        32: "DescribeConfigs",
        33: "AlterConfigs",
        34: "AlterReplicaLogDirs",
        35: "DescribeLogDirs",
        36: "SaslAuthenticate",
        37: "CreatePartitions",
        38: "CreateDelegationToken",
        39: "RenewDelegationToken",
        40: "ExpireDelegationToken",
        41: "DescribeDelegationToken",
        42: "DeleteGroups",
        43: "ElectLeaders",
        44: "IncrementalAlterConfigs",
        45: "AlterPartitionReassignments",
        46: "ListPartitionReassignments",
        47: "OffsetDelete",
        48: "DescribeClientQuotas",
        49: "AlterClientQuotas",
        50: "DescribeUserScramCredentials",
        51: "AlterUserScramCredentials",
        56: "AlterPartition",
        57: "UpdateFeatures",
        60: "DescribeCluster",
        61: "DescribeProducers",
        65: "DescribeTransactions",
        66: "ListTransactions",
        67: "AllocateProducerIds",
    }
)
_OWN_KEYS = frozenset({4, 5, 6, 7, 38, 39, 40, 41, 56, 67})

Kind = Literal["Request", "Response"]


@dataclass(frozen=True, slots=True)
class Versions:
    """An inclusive range of API versions; `3+` ends at 32767, `none` is empty."""

    low: int
    high: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.low <= version <= self.high

    def __bool__(self) -> bool:
        return self.low <= self.high


NO_VERSIONS = Versions(0, -1)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message or struct. `kind` is the type of the value, or of the elements if `is_array`."""

    name: str
    kind: str
    is_array: bool
    versions: Versions
    nullable: Versions = NO_VERSIONS
    tag: int = -1
    tagged: Versions = NO_VERSIONS
    default: Any = None
    fields: tuple["Field", ...] = field(default=())

    def at(self, version: int) -> bool:
        """Whether the version has the field, tagged or not."""
        return version in self.versions


@dataclass(frozen=True, slots=True)
class Message:
    """The schema of a request or response with all its versions."""

    name: str
    api_key: int
    flexible: Versions
    latest: int
    fields: tuple[Field, ...]


def load(api_key: int, kind: Kind) -> Message:
    """Read the schema of an API's request or response. Raises KeyError for a key that is not in API_NAMES."""
    name = API_NAMES[api_key] + kind
    data = load_json(name, OWN_PACKAGE) if api_key in _OWN_KEYS else load_json(name)
    return Message(
        name=name,
        api_key=api_key,
        flexible=parse_versions(data["flexibleVersions"]),
        latest=parse_versions(data["validVersions"]).high,
        fields=tuple(_field(f) for f in data["fields"]),
    )


def parse_versions(text: str | None) -> Versions:
    """Parse `0-4`, `3+`, `2`, `none` or an empty text."""
    if not text or text.strip() == "none":
        return NO_VERSIONS
    low, plus, _ = text.partition("+")
    if plus:
        return Versions(int(low), 32767)
    low, dash, high = text.partition("-")
    return Versions(int(low), int(high if dash else low))


def snake_case(name: str) -> str:
    """Turn `ThrottleTimeMs` into `throttle_time_ms`; each capital begins a word, so `IsKRaft` becomes `is_k_raft`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _field(data: dict[str, Any]) -> Field:
    type_text = data["type"]
    is_array = type_text.startswith("[]")
    kind = type_text.removeprefix("[]")
    fields = tuple(_field(f) for f in data.get("fields", ()))
    if fields:
        kind = "struct"
    name = snake_case(data["name"])
    nullable = parse_versions(data.get("nullableVersions"))
    return Field(
        name=name,
        kind=kind,
        is_array=is_array,
        versions=parse_versions(data["versions"]),
        nullable=nullable,
        tag=data.get("tag", -1),
        tagged=parse_versions(data.get("taggedVersions")),
        default=_default(name, kind, is_array, nullable, data.get("default", "")),
        fields=fields,
    )


def _default(name: str, kind: str, is_array: bool, nullable: Versions, given: Any) -> Any:
    """Return a field's default; that of error_message is null, so that clients use their own text."""
    if given in ("null", None) or (name == "error_message" and nullable):
        return None
    if is_array:
        return ()
    if kind in ("string", "struct"):
        return given or ("" if kind == "string" else {})
    if kind in ("bytes", "records"):
        return b""
    if kind == "bool":
        return str(given).lower() == "true"
    if kind == "uuid":
        return ZERO_UUID
    if kind == "float64":
        return float(given or 0)
    return int(str(given) or "0", 0)

"""The options of `df.write.format("logyard")` and `df.writeStream.format("logyard")`, checked.

| option | means |
|---|---|
| `topic` | the topic; without it a column `topic` names one for each row |
| `progressTopic` | with a column `topic`: an existing topic under whose name the write's progress is kept |
| `clusterFile` or `kafka.bootstrap.servers` | the cluster |
| `security` | a JSON file as for reads (security_protocol, sasl_mechanism, username, password, ssl_*) |
| `kafka.*` | settings of librdkafka: `kafka.compression.type`, `kafka.sasl.username` and so on |
| `writeId` | names the write: what has the same id and epoch is written once (streams: the query's id) |
| `epoch` | batch writes: which run of the write this is, a number that only grows (0) |
| `transactionTimeoutMs` | how long one work partition may take (900000, the most that brokers allow by default) |
| `compareContent` | whether a partition that is committed already must hold the same rows (true) |
| `verifyWaitS` | how long a partition waits until an earlier run's partitions are compared (120) |
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from logyard.login import librdkafka, security
from logyard.spark_jobs.data_source.options import BadOption

OPTIONS = (
    "topic",
    "progressTopic",
    "clusterFile",
    "security",
    "writeId",
    "epoch",
    "transactionTimeoutMs",
    "compareContent",
    "verifyWaitS",
)
# Spark puts it among the options of every stream.
SPARKS_OWN = frozenset({"checkpointlocation"})
KAFKA = "kafka."
# What exactly once depends on, and what is an option of its own.
RESERVED = {
    "transactional.id": "writeId names the write",
    "transaction.timeout.ms": "transactionTimeoutMs sets it",
    "enable.idempotence": "it is always on",
    "acks": "it is always all",
    "request.required.acks": "it is always all",
    "group.id": "it follows from writeId",
    "isolation.level": "it is always read_committed",
    "on_delivery": "it is taken",
    "delivery.report.only.error": "it is taken",
}
_WRITE_ID = re.compile(r"[A-Za-z0-9._-]{1,200}")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The parsed options. `write_id` is None if none was given; `client` has librdkafka's settings, secrets too."""

    topic: str | None
    progress_topic: str
    write_id: str | None
    epoch: int
    timeout_ms: int
    compare: bool
    wait_s: int
    client: Mapping[str, str] = field(repr=False)


def parse(options: Mapping[str, str], *, stream: bool) -> SinkOptions:
    """Check all options; raises BadOption. Spark folds the names of options to lower case, so case is not looked at."""
    given = {key.lower(): str(value) for key, value in options.items()}
    known = {name.lower() for name in OPTIONS}
    for name in given:
        if name not in known and name not in SPARKS_OWN and not name.startswith(KAFKA):
            raise BadOption(f"option {name} is not known: choose among {', '.join(OPTIONS)} and {KAFKA}*")
    if stream and "epoch" in given:
        raise BadOption("epoch: a stream's epoch is the number of its micro-batch, leave the option out")
    topic, anchor = given.get("topic") or None, given.get("progresstopic") or given.get("topic")
    if not anchor:
        raise BadOption("topic: name it; rows with a column topic need progressTopic, an existing topic, instead")
    write_id = given.get("writeid")
    if write_id is not None and not _WRITE_ID.fullmatch(write_id):
        raise BadOption(f"writeId {write_id!r}: 1 to 200 of the letters A-Z a-z 0-9 . _ - are expected")
    return SinkOptions(
        topic=topic,
        progress_topic=anchor,
        write_id=write_id,
        epoch=_number(given, "epoch", 0, 0),
        timeout_ms=_number(given, "transactionTimeoutMs", 900_000, 1000),
        compare=_flag(given, "compareContent"),
        wait_s=_number(given, "verifyWaitS", 120, 1),
        client=_client(given),
    )


def _number(given: Mapping[str, str], name: str, default: int, least: int) -> int:
    text = given.get(name.lower(), str(default))
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise BadOption(f"{name} {text!r}: a whole number from {least} is expected")
    return int(text)


def _flag(given: Mapping[str, str], name: str) -> bool:
    text = given.get(name.lower(), "true").lower()
    if text not in ("true", "false"):
        raise BadOption(f"{name} {text!r}: true or false is expected")
    return text == "true"


def _client(given: Mapping[str, str]) -> dict[str, str]:
    settings = _security(given["security"]) if "security" in given else {}
    for key, value in given.items():
        name = key.removeprefix(KAFKA)
        if name == key:
            continue
        if name in RESERVED:
            raise BadOption(f"{key} cannot be set: {RESERVED[name]}")
        settings[name] = value
    if "bootstrap.servers" not in settings:
        if "clusterfile" not in given:
            raise BadOption("kafka.bootstrap.servers or clusterFile: say which cluster to write to")
        servers = _read(given["clusterfile"], "clusterFile").get("bootstrap")
        if not isinstance(servers, str) or not servers:
            raise BadOption(f"clusterFile {given['clusterfile']}: it names no brokers (bootstrap)")
        settings["bootstrap.servers"] = servers
    return settings


def _security(path: str) -> dict[str, str]:
    try:
        return librdkafka.options(security.of(_read(path, "security")))
    except security.BadSettings as problem:
        raise BadOption(f"security {path}: {problem}") from None


def _read(path: str, name: str) -> dict[str, Any]:
    """The object in a JSON file, as it is: null is no value."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError) as error:
        raise BadOption(f"{name} {path}: a JSON object is expected ({error})") from None
    if not isinstance(found, dict):
        raise BadOption(f"{name} {path}: a JSON object is expected, not {type(found).__name__}")
    return found

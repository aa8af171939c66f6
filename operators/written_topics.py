"""What an operator's result says about the topics that it changed: topic → the `extra` of its asset event. Pure.

A result of a dry run, and one that changed nothing, has no event.
"""

from collections.abc import Mapping
from typing import Any

Written = Mapping[str, Mapping[str, Any]]
Result = Mapping[str, Any]

EARLIER = "written_in_earlier_tries"
"""What a result of several tries has of those that failed: what its event tells of them."""

_BEFORE = ("records_before", "bytes_before")
_COUNTS = ("records_before", "records_after", "bytes_before", "bytes_after")


def created(result: Result) -> Written:
    """Of CreateTopicOperator and AlterTopicOperator: {"change", "partitions", "set_configs", "delete_configs"}."""
    changes = result.get("changes")
    if not changes:
        return {}
    wanted = {key: changes[key] for key in ("set_configs", "delete_configs") if changes[key]}
    if not changes["create"] and not changes["add_partitions_to"] and not wanted:
        return {}
    told: dict[str, Any] = {"change": "created" if changes["create"] else "altered", **wanted}
    partitions = result.get("partitions")
    if partitions is not None:
        told["partitions"] = len(partitions)
    return {result["topic"]: told}


def partitions_added(result: Result) -> Written:
    """Of AddPartitionsOperator: {"change", "partitions_before", "partitions"}."""
    if result.get("missing") or result["before"] == result["after"]:
        return {}
    told = {"change": "partitions added", "partitions_before": result["before"], "partitions": result["after"]}
    return {result["topic"]: told}


def compacted(result: Result) -> Written:
    """Of CompactSegmentsOperator: {"change", "partitions", "records_before", "records_after", "bytes_before",
    "bytes_after"}; `partitions`: of each compacted one the same four counts."""
    topics = {topic: dict(told["partitions"]) for topic, told in (result.get(EARLIER) or {}).items()}
    for name, one in (result.get("details") or {}).items():
        if one["outcome"] != "compacted":
            continue
        topic, _, partition = name.rpartition("-")
        partitions = topics.setdefault(topic, {})
        before = partitions.get(partition, one)  # of the first try
        partitions[partition] = {key: (before if key in _BEFORE else one)[key] for key in _COUNTS}
    return {
        topic: {
            "change": "compacted",
            "partitions": partitions,
            **{key: sum(one[key] for one in partitions.values()) for key in _COUNTS},
        }
        for topic, partitions in topics.items()
    }


def produced(result: Result) -> Written:
    """Of ProduceToTopicOperator: {"change", "records", "bytes", "offsets": partition → {"start", "end"}}."""
    if result["dry_run"] or not result["records"]:
        return {}
    told = {key: result[key] for key in ("records", "bytes", "offsets")}
    return {result["topic"]: {"change": "records", **told}}


def copied(result: Result) -> Written:
    """Of CopyRecordsOperator: as `produced`, of the topic that was written, with "copied_from"."""
    return {
        topic: {**told, "copied_from": result["topic"]}
        for topic, told in produced({**result, "topic": result["to_topic"]}).items()
    }

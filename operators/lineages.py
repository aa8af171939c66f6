"""The lineage of each operator that reads or writes records, made of the operator's fields and its result. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from logyard.operators.lineage import Lineage, Touched, columns, split_offsets

Result = Mapping[str, Any]


def created(operator: Any, result: Result) -> Lineage:
    """Of the operators of topics.py that make or change one."""
    return Lineage(outputs=[Touched(result["topic"])])


def compacted(operator: Any, result: Result) -> Lineage:
    """Of CompactSegmentsOperator: the topic is read and written."""
    inputs, outputs = [], []
    for topic, partitions in split_offsets(result.get("details") or {}).items():
        done = [one for one in partitions.values() if one["outcome"] == "compacted"]
        if done:
            before, after = (
                {"rows": sum(p[f"records_{when}"] for p in done), "size": sum(p[f"bytes_{when}"] for p in done)}
                for when in ("before", "after")
            )
            inputs.append(Touched(topic, **before))
            outputs.append(Touched(topic, **after))
    return Lineage(inputs, outputs)


def audited(operator: Any, result: Result) -> Lineage:
    """Of AuditSegmentsOperator."""
    return Lineage(inputs=[Touched(topic) for topic in result.get("topics", ())])


def exported(operator: Any, result: Result) -> Lineage:
    """Of ExportSegmentsOperator; the schema is what its JSON schemas say."""
    inputs = [
        Touched(topic, rows=sum(o["rows"] for o in found.values()), offsets=found)
        for topic, found in split_offsets(result.get("offsets") or {}).items()
    ]
    schema = [*columns(operator.key_schema), *columns(operator.value_schema)]
    written = Touched(
        operator.destination,
        is_topic=False,
        rows=result.get("rows"),
        size=result.get("bytes"),
        files=result.get("files"),
        schema=schema,
    )
    return Lineage(inputs, [written])


def produced(operator: Any, result: Result) -> Lineage:
    """Of ProduceToTopicOperator."""
    if result["dry_run"]:
        return Lineage()
    size, offsets = result["bytes"], result["offsets"]
    return Lineage(outputs=[Touched(result["topic"], rows=result["records"], size=size, offsets=offsets)])


def copied(operator: Any, result: Result) -> Lineage:
    """Of CopyRecordsOperator."""
    if result["dry_run"]:
        return Lineage()
    read = Touched(result["topic"], rows=result["looked_at"], offsets=result["read"])
    outputs = produced(operator, {**result, "topic": result["to_topic"]}).outputs
    return Lineage([read], [replace(written, conn_id=result["to_cluster"]) for written in outputs])


def consumed(operator: Any, result: Result) -> Lineage:
    """Of ConsumeFromTopicOperator."""
    return Lineage(
        inputs=[
            Touched(topic, rows=result["records_of"].get(topic, 0), offsets=found)
            for topic, found in split_offsets(result["offsets"]).items()
        ]
    )

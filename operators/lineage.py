"""What a task read and wrote, for OpenLineage: datasets with counts, offsets and, where it is known, the schema.

OpenLineage's classes are imported only when its provider asks for facets, so nothing here needs them.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from logyard.operators.assets import SCHEME, naming_server, topic_uri

OFFSETS_FACET = "logyard_offsets"
# Of Spark's DDL: COMMENT and a text in quotes of either kind.
_COMMENT = re.compile(r"""(?is)\s+comment\s+(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")
_ABOUT_OFFSETS = "urn:logyard:facets:offsets:1"

Offsets = Mapping[str, Mapping[str, int]]
"""Partition (as text) → {"start", "end"}; `end` is the offset after the last record."""


@dataclass(frozen=True, slots=True)
class Touched:
    """A dataset: a topic by its name, or a place by its URL or path. `schema`: pairs of field and type; `conn_id`: the
    connection of the topic's cluster, where it is not the operator's."""

    name: str
    is_topic: bool = True
    rows: int | None = None
    size: int | None = None
    files: int | None = None
    offsets: Offsets = field(default_factory=dict)
    schema: Sequence[tuple[str, str]] = ()
    conn_id: str | None = None


@dataclass(frozen=True, slots=True)
class Lineage:
    inputs: Sequence[Touched] = ()
    outputs: Sequence[Touched] = ()


class TellsLineage:
    """An operator that tells OpenLineage what it read and wrote, once it has ended well.

    `lineage` makes it of the operator and its result; None for operators that read and write no records.
    """

    lineage: ClassVar[Any] = None  # a staticmethod of the operator and the result, returns Lineage
    lineage_of: Any = None

    def get_openlineage_facets_on_complete(self, _task_instance: Any) -> Any:
        """Called by OpenLineage's provider in the task's process, after the task has ended well."""
        make = type(self).lineage
        if make is None or self.lineage_of is None:
            return None
        return as_openlineage(make(self, self.lineage_of), self.logyard_conn_id)  # type: ignore[attr-defined]


def as_openlineage(lineage: Lineage, logyard_conn_id: str) -> Any:
    """OpenLineage's datasets, as its provider's OperatorLineage."""
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import InputDataset, OutputDataset

    server = naming_server(logyard_conn_id)
    inputs, outputs = [], []
    for one in lineage.inputs:
        namespace, name = _named(one, server)
        inputs.append(InputDataset(namespace, name, facets=_facets(one), inputFacets=_input_facets(one)))
    for one in lineage.outputs:
        namespace, name = _named(one, server)
        outputs.append(OutputDataset(namespace, name, facets=_facets(one), outputFacets=_output_facets(one)))
    return OperatorLineage(inputs=inputs, outputs=outputs)


def named_place(place: str) -> tuple[str, str]:
    """OpenLineage's namespace and name of a directory: ("file", path), or ("s3://bucket", path)."""
    parts = urlsplit(place)
    if not parts.scheme:
        return "file", str(Path(place).absolute())
    if parts.scheme == "file":
        return "file", parts.path
    return f"{parts.scheme}://{parts.netloc}", parts.path.strip("/") or "/"


def columns(ddl: str | None) -> list[tuple[str, str]]:
    """The fields of Spark's DDL, `id BIGINT NOT NULL, tags ARRAY<STRING>`, as pairs of name and type; without comments,
    which may have commas."""
    found, depth, start, text = [], 0, 0, f"{_COMMENT.sub('', ddl or '')},"
    for place, sign in enumerate(text):
        depth += (sign in "<(") - (sign in ">)")
        if sign == "," and depth == 0:
            found.append(text[start:place])
            start = place + 1
    pairs = [re.split(r"[\s:]+", one.strip(), maxsplit=1) for one in found if one.strip()]
    return [(pair[0].strip("`"), re.sub(r"(?i)\s+not\s+null.*$", "", pair[1])) for pair in pairs if len(pair) == 2]


def _named(one: Touched, server: str) -> tuple[str, str]:
    if not one.is_topic:
        return named_place(one.name)
    parts = urlsplit(topic_uri(naming_server(one.conn_id) if one.conn_id else server, one.name))
    return f"{SCHEME}://{parts.netloc}", one.name


def _facets(one: Touched) -> dict[str, Any]:
    if not one.schema:
        return {}
    from openlineage.client.facet_v2 import schema_dataset

    fields = [schema_dataset.SchemaDatasetFacetFields(name=name, type=kind) for name, kind in one.schema]
    return {"schema": schema_dataset.SchemaDatasetFacet(fields=fields)}


def _input_facets(one: Touched) -> dict[str, Any]:
    made = {OFFSETS_FACET: _offsets_facets()[0](partitions=_ranges(one.offsets))} if one.offsets else {}
    if one.rows is not None:
        try:
            from openlineage.client.generated import input_statistics_input_dataset as statistics
        except ImportError:  # OpenLineage before 1.38
            return made
        made["inputStatistics"] = statistics.InputStatisticsInputDatasetFacet(rowCount=one.rows, size=one.size)
    return made


def _output_facets(one: Touched) -> dict[str, Any]:
    made = {OFFSETS_FACET: _offsets_facets()[1](partitions=_ranges(one.offsets))} if one.offsets else {}
    if one.rows is not None:
        from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics

        made["outputStatistics"] = statistics.OutputStatisticsOutputDatasetFacet(
            rowCount=one.rows, size=one.size, fileCount=one.files
        )
    return made


def _ranges(offsets: Offsets) -> list[dict[str, int]]:
    ordered = sorted((int(partition), found) for partition, found in offsets.items())
    return [{"partition": partition, "start": found["start"], "end": found["end"]} for partition, found in ordered]


@cache
def _offsets_facets() -> tuple[Any, Any]:
    """Our facet for inputs and for outputs: of each partition the offsets from `start` up to, without, `end`."""
    import attr
    from openlineage.client.generated.base import InputDatasetFacet, OutputDatasetFacet

    def made(base: Any) -> Any:
        schema = staticmethod(lambda: _ABOUT_OFFSETS)
        shape = {"partitions": attr.field(factory=list), "_get_schema": schema}
        return attr.define(type(f"LogyardOffsets{base.__name__}", (base,), shape))

    return made(InputDatasetFacet), made(OutputDatasetFacet)


def split_offsets(offsets: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """`topic-partition` → anything, as topic → partition → that."""
    topics: dict[str, dict[str, Any]] = {}
    for name, found in offsets.items():
        topic, _, partition = name.rpartition("-")
        topics.setdefault(topic, {})[partition] = found
    return topics

"""What a catalog's table keeps of a Parquet file: the ids of its columns, and statistics out of its footer. Pure.

The statistics are made in the task that wrote the file and go to the manifest as JSON: by a column's id, bytes
(`sizes`), values (`counts`), nulls (`nulls`), and the bounds (`lower`, `upper`) of columns that queries compare.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

ID = b"PARQUET:field_id"


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column of a Parquet file: its path there, its name in a table's schema, and its type."""

    path: str
    name: str
    kind: pa.DataType


def leaves(schema: pa.Schema) -> list[Leaf]:
    """Return the Parquet columns that a schema's columns become, in the file's order."""
    return [leaf for field in schema for leaf in _leaves(field.name, field.name, field.type)]


def _leaves(path: str, name: str, kind: pa.DataType) -> Iterator[Leaf]:
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(f"{path}.{field.name}", f"{name}.{field.name}", field.type)
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", f"{name}.key", kind.key_type)
        yield from _leaves(f"{path}.key_value.value", f"{name}.value", kind.item_type)
    elif pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", f"{name}.element", kind.value_type)
    else:
        yield Leaf(path, name, kind)


def with_ids(schema: pa.Schema, ids: Mapping[str, int]) -> pa.Schema:
    """Return the schema with the columns' ids, as a writer of Parquet takes them."""
    return pa.schema([_with_id(field, field.name, ids) for field in schema])


def _with_id(field: pa.Field, name: str, ids: Mapping[str, int]) -> pa.Field:
    return field.with_type(_typed(field.type, name, ids)).with_metadata({ID: str(ids[name])})


def _typed(kind: pa.DataType, name: str, ids: Mapping[str, int]) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([_with_id(field, f"{name}.{field.name}", ids) for field in kind])
    if pa.types.is_map(kind):
        key = _with_id(kind.key_field, f"{name}.key", ids)
        return pa.map_(key, _with_id(kind.item_field, f"{name}.value", ids))
    if pa.types.is_list(kind):
        return pa.list_(_with_id(kind.value_field, f"{name}.element", ids))
    return kind


def statistics_of(footer: pq.FileMetaData, schema: pa.Schema, ids: Mapping[str, int]) -> dict[str, Any]:
    """Return a file's statistics as JSON."""
    found: dict[str, Any] = {"sizes": {}, "counts": {}, "nulls": {}, "lower": {}, "upper": {}}
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    for at, leaf in enumerate(leaves(schema)):
        name = str(ids[leaf.name])
        columns = [group.column(at) for group in groups]
        assert all(column.path_in_schema == leaf.path for column in columns), leaf.path
        found["sizes"][name] = sum(column.total_compressed_size for column in columns)
        found["counts"][name] = sum(column.num_values for column in columns)
        told = [column.statistics for column in columns]
        if all(one is not None and one.has_null_count for one in told):
            found["nulls"][name] = sum(one.null_count for one in told)
        if leaf.path == leaf.name and "." not in leaf.path and (bounds := _bounds(leaf.kind, told)):
            found["lower"][name], found["upper"][name] = bounds
    found["offsets"] = sorted(_offset(group.column(0)) for group in groups)
    return found


def _bounds(kind: pa.DataType, told: list[Any]) -> tuple[Any, Any] | None:
    """Return the smallest and largest value; None if there is none, or not every row group tells its own."""
    is_text = pa.types.is_string(kind)
    is_number = pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind)
    if not (is_text or is_number) or any(one is None for one in told):
        return None
    if any(not one.has_min_max and (not one.has_null_count or one.num_values) for one in told):
        return None
    known = [one for one in told if one.has_min_max]
    if not known:
        return None
    if is_text:
        return min(str(one.min) for one in known), max(str(one.max) for one in known)
    return min(int(one.min_raw) for one in known), max(int(one.max_raw) for one in known)


def _offset(column: Any) -> int:
    dictionary, data = column.dictionary_page_offset, int(column.data_page_offset)
    return min(int(dictionary), data) if column.has_dictionary_page and dictionary else data

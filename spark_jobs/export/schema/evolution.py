"""How a table's schema may change: nullable columns may be added, everything else is refused. Pure."""

from collections.abc import Iterable

import pyarrow as pa

from logyard.broker.errors import LogyardError
from logyard.spark_jobs.export.schema.ddl import type_name


class SchemaRefused(LogyardError):
    """A table cannot take this schema; the text names the column, its old type and its new one."""


def check_evolution(old: pa.Schema, new: pa.Schema) -> None:
    """Raise SchemaRefused unless `new` is `old` with nullable columns added (in structs too)."""
    _compare("", old, new)


def _compare(path: str, old: Iterable[pa.Field], new: Iterable[pa.Field]) -> None:
    later = {field.name: field for field in new}
    for before in old:
        name = f"{path}{before.name}"
        after = later.pop(before.name, None)
        if after is None:
            raise SchemaRefused(f"column {name}: was {_said(before)}, is missing now{_ADVICE}")
        _compare_types(name, before, after)
    for field in later.values():
        if not field.nullable:
            raise SchemaRefused(
                f"column {path}{field.name}: was not there, is {_said(field)} now:"
                " an added column must be nullable (earlier records lack it)"
            )


def _compare_types(name: str, before: pa.Field, after: pa.Field) -> None:
    old, new = before.type, after.type
    if before.nullable == after.nullable and pa.types.is_struct(old) and pa.types.is_struct(new):
        _compare(f"{name}.", list(old), list(new))
    elif before.nullable == after.nullable and pa.types.is_list(old) and pa.types.is_list(new):
        _compare_types(f"{name}.element", old.value_field, new.value_field)
    elif _said(before) != _said(after):
        raise SchemaRefused(f"column {name}: was {_said(before)}, is {_said(after)} now{_ADVICE}")


def _said(field: pa.Field) -> str:
    return f"{type_name(field.type)}{'' if field.nullable else ' NOT NULL'}"


_ADVICE = ": only nullable columns may be added (another --destination takes the new schema)"

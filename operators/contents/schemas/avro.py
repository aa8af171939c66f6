"""Avro by fastavro. Only in the decoding process: fastavro's C code crashes or loops on some hostile bytes."""

import io
import json
from typing import Any, cast

import fastavro

from logyard.operators.contents.schemas.fetching import Schema
from logyard.operators.contents.schemas.problems import Undecoded

_FIELD = "value"


class AvroReader:
    """Raises Undecoded where the schema cannot be used."""

    def __init__(self, schema: Schema) -> None:
        named: dict[str, Any] = {}
        try:
            self._parse_references(schema, named)
            # Inside a record, which adds no bytes: only in records fastavro keeps what is referred to.
            root = {
                "type": "record",
                "name": "LogyardRoot",
                "fields": [{"name": _FIELD, "type": json.loads(schema.text)}],
            }
            self._parsed = fastavro.parse_schema(root, named_schemas=named)
        except (Undecoded, MemoryError, RecursionError):
            raise
        except Exception as problem:  # fastavro raises whatever an odd schema leads to
            raise Undecoded(f"its Avro schema cannot be used: {type(problem).__name__}: {problem}") from None

    def _parse_references(self, schema: Schema, named: dict[str, Any]) -> None:
        for _, one in schema.references:
            if one.kind != "AVRO":
                raise Undecoded("its Avro schema refers to one that is not Avro")
            self._parse_references(one, named)
            content = json.loads(one.text)
            if not (isinstance(content, dict) and _full_name(content) in named):
                fastavro.parse_schema(content, named_schemas=named)

    def read(self, data: bytes) -> Any:
        try:
            found = fastavro.schemaless_reader(io.BytesIO(data), self._parsed, None)
        except (MemoryError, RecursionError):
            raise  # child.py has words for them
        except Exception as problem:
            raise Undecoded(f"it does not fit its Avro schema: {type(problem).__name__}") from None
        return cast(dict[str, Any], found)[_FIELD]


def _full_name(content: dict[str, Any]) -> str:
    name, space = str(content.get("name", "")), content.get("namespace")
    return name if "." in name or not space else f"{space}.{name}"

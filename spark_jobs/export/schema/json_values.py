"""JSON texts converted to values of Arrow types; a text that does not fit raises Misfit with the reason. Pure.

Rule 1: values are never coerced: a text does not become a number, nor a fraction a whole number. Fields that the schema
        does not name are left out.
Rule 2: dates and timestamps are ISO 8601 texts (UTC if they have no zone), timestamps also whole milliseconds; binary
        is base64.
"""

import base64
import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta, timezone
from decimal import Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
# As many digits as a DECIMAL may have; Python's own context has 28.
_EXACT = Context(prec=38)
Convert = Callable[[Any], Any]
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(?::(\d\d)(?:[.,](\d+))?)?(Z|z|[+-]\d\d(?::?\d\d)?)?", re.ASCII)
# What Python 3.10 reads, which executors may have. Later ones read more (20260131, 2026-W05-6), and so all executors
# make the same of a record.
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_OLD_TIME = re.compile(
    _DAY.pattern + r"(?:.\d\d(?::\d\d(?::\d\d(?:\.\d{3}(?:\d{3})?)?)?)?(?:[+-]\d\d:\d\d(?::\d\d(?:\.\d{6})?)?)?)?",
    re.ASCII | re.DOTALL,
)
_WORDS: Mapping[type, str] = {
    type(None): "null",
    str: "text",
    bool: "a truth value",
    int: "a number",
    float: "a number",
    Decimal: "a number",
    dict: "an object",
    list: "an array",
}


class Misfit(ValueError):
    """A text that is not JSON, or does not fit its type; the text says where and why."""


def reader(kind: pa.StructType) -> Callable[[bytes], Any]:
    """Return a function from JSON bytes to a value for a column of this type; it raises Misfit."""
    convert = _converter(kind)
    decoder = json.JSONDecoder(parse_float=Decimal if _has_decimals(kind) else None, parse_constant=_no_constant)

    def read(text: bytes) -> Any:
        try:
            value = decoder.decode(text.decode())
        except UnicodeDecodeError as error:
            raise Misfit(f"it is not UTF-8 (byte {error.start})") from None
        except RecursionError:
            raise Misfit("its JSON is nested too deep") from None
        except InvalidOperation:
            raise Misfit("it has a number with an exponent that no decimal has") from None
        except ValueError as error:
            raise Misfit(f"it is not JSON: {error}") from None
        return convert(value)

    return read


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no number")


def _has_decimals(kind: pa.DataType) -> bool:
    return pa.types.is_decimal(kind) or any(_has_decimals(kind.field(i).type) for i in range(kind.num_fields))


def _converter(kind: pa.DataType) -> Convert:
    """Return a function that converts a parsed value other than null to the column's value."""
    if pa.types.is_struct(kind):
        return _object([(f.name, _converter(f.type), f.nullable) for f in kind])
    if pa.types.is_list(kind):
        return _array(_converter(kind.value_type))
    if pa.types.is_map(kind):
        return _map(_converter(kind.item_type))
    if pa.types.is_integer(kind):
        return _whole(kind.bit_width)
    if pa.types.is_floating(kind):
        return _real("<f" if kind.bit_width == 32 else "<d")
    if pa.types.is_decimal(kind):
        return _decimal(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return _timestamp
    return _PLAIN[kind]


def _object(fields: list[tuple[str, Convert, bool]]) -> Convert:
    def convert(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise _unlike("an object", value)
        found = {}
        for name, inner, nullable in fields:
            part = value.get(name)
            if part is not None:
                try:
                    part = inner(part)
                except Misfit as error:
                    raise Misfit(f"{name}{_joined(error)}") from None
            elif not nullable:
                raise Misfit(f"{name}: it is missing")
            found[name] = part
        return found

    return convert


def _joined(error: Misfit) -> str:
    """Return an inner error's text to append to a field's name: `.gate: …`, `[3]: …`, or `: …` of the field itself."""
    text = str(error)
    head = text.partition(":")[0]
    if text.startswith("["):
        return text
    return f": {text}" if " " in head else f".{text}"


def _array(inner: Convert) -> Convert:
    def convert(value: Any) -> list[Any]:
        if type(value) is not list:
            raise _unlike("an array", value)
        found = []
        for index, part in enumerate(value):
            try:
                found.append(None if part is None else inner(part))
            except Misfit as error:
                raise Misfit(f"[{index}]{_joined(error)}") from None
        return found

    return convert


def _map(inner: Convert) -> Convert:
    def convert(value: Any) -> list[tuple[str, Any]]:
        if type(value) is not dict:
            raise _unlike("an object", value)
        return [(_text(name), None if part is None else inner(part)) for name, part in value.items()]

    return convert


def _whole(bits: int) -> Convert:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def convert(value: Any) -> int:
        if type(value) is not int:
            raise _unlike("a whole number", value)
        if not low <= value <= high:
            raise Misfit(f"a whole number of {bits} bits is expected, found {str(value)[:40]}")
        return value

    return convert


def _real(form: str) -> Convert:
    """:param form: the type for `struct`, which refuses what would become infinite in fewer bits."""

    def convert(value: Any) -> float:
        if type(value) not in (int, float, Decimal):
            raise _unlike("a number", value)
        try:
            found = float(value)
            struct.pack(form, found)
        except OverflowError:
            found = math.inf
        if math.isinf(found):
            raise Misfit("a number is expected, found one that is too large")
        return found

    return convert


def _decimal(precision: int, scale: int) -> Convert:
    smallest = Decimal(1).scaleb(-scale)

    def convert(value: Any) -> Decimal:
        if type(value) not in (int, Decimal):
            raise _unlike("a number", value)
        try:
            exact = Decimal(value).quantize(smallest, context=_EXACT)
        except InvalidOperation:
            exact = None
        if exact is None or exact != value or len(exact.as_tuple().digits) > precision:
            raise Misfit(f"a number of DECIMAL({precision}, {scale}) is expected, found {str(value)[:40]}")
        return exact

    return convert


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise _unlike("true or false", value)
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise _unlike("text", value)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Misfit("text is expected, found half of a surrogate pair") from None
    return value


def _binary(value: Any) -> bytes:
    try:
        return base64.b64decode(_text(value), validate=True)
    except Misfit:
        raise
    except ValueError:
        raise Misfit("base64 is expected, found another text") from None


def _date(value: Any) -> date:
    try:
        text = _text(value)
        if not _DAY.fullmatch(text):
            raise ValueError(text)
        return date.fromisoformat(text)
    except Misfit:
        raise
    except ValueError:
        raise Misfit(f"a date such as 2026-01-31 is expected, found {value[:40]!r}") from None


def _timestamp(value: Any) -> datetime:
    try:
        if type(value) is int:
            return EPOCH + timedelta(milliseconds=value)
        text = plain_time(_text(value))
        if not _OLD_TIME.fullmatch(text):
            raise ValueError(text)
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)
    except Misfit:
        raise
    except (ValueError, OverflowError):
        raise Misfit(f"a time such as 2026-01-31T12:00:00Z is expected, found {str(value)[:40]!r}") from None


def plain_time(text: str) -> str:
    """Return a time in the form that Python 3.10 reads too: with a fraction of six digits, and `+00:00` for `Z`.

    Other texts are returned as they are. So executors of different versions make the same of a record.
    """
    found = _TIME.fullmatch(text)
    if found is None:
        return text
    day, minutes, seconds, fraction, zone = found.groups()
    told = f"{day}T{minutes}:{seconds or '00'}.{(fraction or '')[:6]:0<6}"
    if zone in (None, "Z", "z"):
        return told + ("+00:00" if zone else "")
    return f"{told}{zone[:3]}:{zone[3:].lstrip(':') or '00'}"


_PLAIN: Mapping[pa.DataType, Convert] = {
    pa.bool_(): _boolean,
    pa.string(): _text,
    pa.binary(): _binary,
    pa.date32(): _date,
}


def _unlike(wanted: str, value: Any) -> Misfit:
    return Misfit(f"{wanted} is expected, found {_WORDS[type(value)]}")

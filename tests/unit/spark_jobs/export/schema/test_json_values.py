import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from logyard.spark_jobs.export.schema import ddl
from logyard.spark_jobs.export.schema.formats import BadFormat, Formats, SideFormat
from logyard.spark_jobs.export.schema.json_values import Misfit, plain_time, reader

SCHEMA = """id BIGINT, ok BOOLEAN, small TINYINT, price DOUBLE, ratio FLOAT, exact DECIMAL(6, 2), name STRING,
    raw BINARY, day DATE, at TIMESTAMP, tags ARRAY<STRING>, counts MAP<STRING, INT>,
    legs ARRAY<STRUCT<gate: INT NOT NULL>>"""


def read(text: str | bytes) -> dict[str, Any]:
    value = reader(pa.struct(list(ddl.parse(SCHEMA))))(text if isinstance(text, bytes) else text.encode())
    return {name: part for name, part in value.items() if part is not None}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{}", {}),
        ('{"id": null, "unknown": [1]}', {}),
        ('{"id": -9223372036854775808, "ok": false, "small": 127}', {"id": -(2**63), "ok": False, "small": 127}),
        ('{"price": 1, "exact": 1234.5}', {"price": 1.0, "exact": Decimal("1234.50")}),
        ('{"price": -1e308, "ratio": 3.4028235e38}', {"price": -1e308, "ratio": 3.4028235e38}),
        ('{"name": "caf\\u00e9", "raw": "AAE="}', {"name": "café", "raw": b"\0\1"}),
        ('{"day": "2026-01-31"}', {"day": date(2026, 1, 31)}),
        ('{"at": "2026-01-31T12:00:00"}', {"at": datetime(2026, 1, 31, 12, tzinfo=UTC)}),
        ('{"at": 1500}', {"at": datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)}),
        (
            '{"tags": [null, "a"], "counts": {"a": 1, "b": null}}',
            {"tags": [None, "a"], "counts": [("a", 1), ("b", None)]},
        ),
        ('{"legs": [{"gate": 3}]}', {"legs": [{"gate": 3}]}),
    ],
)
def test_what_fits(text: str, value: dict[str, Any]) -> None:
    found = read(text)
    assert found == value
    pa.array([found], pa.struct(list(ddl.parse(SCHEMA))))


@pytest.mark.parametrize("number", ["9" * 38, "9" * 28 + "." + "9" * 10, "-0." + "0" * 9 + "1"])
def test_a_decimal_may_have_all_the_digits_that_its_type_has(number: str) -> None:
    scale = len(number.partition(".")[2])
    kind = pa.struct(list(ddl.parse(f"exact DECIMAL(38, {scale})")))
    value = reader(kind)(f'{{"exact": {number}}}'.encode())
    assert value == {"exact": Decimal(number)}
    assert pa.array([value], kind).to_pylist() == [value]
    with pytest.raises(Misfit, match=r"exact: a number of DECIMAL\(38"):
        reader(kind)(f'{{"exact": {"9" * 39}}}'.encode())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it is not JSON"),
        ("{} {}", "it is not JSON: Extra data"),
        (b'{"name": "\xff"}', "it is not UTF-8 (byte 10)"),
        ("[" * 100_000, "nested too deep"),
        ("null", "an object is expected, found null"),
        ("[]", "an object is expected, found an array"),
        ('{"price": NaN}', "it is not JSON: NaN is no number"),
        ('{"id": 1.0}', "id: a whole number is expected, found a number"),
        ('{"id": true}', "id: a whole number is expected, found a truth value"),
        ('{"id": 9223372036854775808}', "id: a whole number of 64 bits is expected, found 9223372036854775808"),
        ('{"small": 128}', "small: a whole number of 8 bits"),
        ('{"price": "1"}', "price: a number is expected, found text"),
        ('{"price": 1' + "0" * 400 + "}", "price: a number is expected, found one that is too large"),
        ('{"exact": 1e99999999999999999999}', "it has a number with an exponent that no decimal has"),
        ('{"unknown": -1e-99999999999999999999}', "it has a number with an exponent that no decimal has"),
        (
            '{"exact": 1e999999999999999999}',
            "exact: a number of DECIMAL(6, 2) is expected, found 1E+999999999999999999",
        ),
        ('{"price": -1e309}', "price: a number is expected, found one that is too large"),
        ('{"ratio": 3.5e38}', "ratio: a number is expected, found one that is too large"),
        ('{"ratio": 1e309}', "ratio: a number is expected, found one that is too large"),
        ('{"exact": 1.234}', "exact: a number of DECIMAL(6, 2) is expected, found 1.234"),
        ('{"exact": 12345}', "exact: a number of DECIMAL(6, 2)"),
        ('{"name": "\\ud800"}', "name: text is expected, found half of a surrogate pair"),
        ('{"raw": "!"}', "raw: base64 is expected"),
        ('{"day": "31.1."}', "day: a date such as"),
        ('{"at": "soon"}', "at: a time such as"),
        ('{"at": 99999999999999999999}', "at: a time such as"),
        ('{"legs": [{"gate": 1}, {}]}', "legs[1].gate: it is missing"),
        ('{"tags": ["a", 1]}', "tags[1]: text is expected, found a number"),
        ('{"counts": {"a": "1"}}', "counts: a whole number is expected, found text"),
    ],
)
def test_what_does_not_says_where_and_why(text: str | bytes, words: str) -> None:
    with pytest.raises(Misfit) as caught:
        read(text)
    assert words in str(caught.value)


def test_one_bad_value_leaves_the_others_alone() -> None:
    raw = pa.array([b"a", b"\xff", None, "é".encode()], pa.binary())
    column, bad = SideFormat("value", "string").column(raw)
    assert column.to_pylist() == ["a", None, None, "é"]
    assert [(one.row, one.side, one.reason) for one in bad] == [(1, "value", "it is not UTF-8 (byte 0)")]
    assert SideFormat("value").column(raw) == (raw, [])


def test_sides_that_are_not_written_are_not_looked_at() -> None:
    batch = pa.RecordBatch.from_pydict({"key": pa.array([b"\xff"]), "value": pa.array([b"x"])})
    formats = Formats(SideFormat("key", "string"), SideFormat("value", "string"))
    assert formats.apply(batch, ["value"])[1] == []
    assert [one.side for one in formats.apply(batch, ["key", "value"])[1]] == ["key"]


@pytest.mark.parametrize("column", ["x DOUBLE", "x FLOAT"])
def test_a_number_that_is_too_large_does_not_become_infinite(column: str) -> None:
    with pytest.raises(Misfit, match="x: a number is expected, found one that is too large"):
        reader(pa.struct(list(ddl.parse(column))))(b'{"x": 1e309}')


def test_a_schema_goes_with_json_and_json_with_a_schema() -> None:
    with pytest.raises(BadFormat, match="--key-schema FILE"):
        SideFormat("key", "json")
    with pytest.raises(BadFormat, match="--key-schema goes with --key-format json, not string"):
        SideFormat("key", "string", "a INT")


# What `datetime.fromisoformat` of Python 3.10 reads, which Spark's executors may have.
OLD = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}([+-]\d\d:\d\d)?")


@pytest.mark.parametrize("zone", ["", "Z", "z", "+01:00", "-0530", "+02"])
@pytest.mark.parametrize("fraction", ["", ".5", ",25", ".123456", ".123456789"])
@pytest.mark.parametrize("between", ["T", " "])
def test_every_python_reads_the_same_times(between: str, fraction: str, zone: str) -> None:
    """A time that ends with Z, which most writers of JSON make, is no dead letter where executors have Python 3.10."""
    text = f"2026-01-31{between}12:00:07{fraction}{zone}"
    assert OLD.fullmatch(plain_time(text))
    assert datetime.fromisoformat(plain_time(text)) == datetime.fromisoformat(text.replace("z", "Z"))
    assert plain_time(f"2026-01-31{between}12:00{zone}") == plain_time(f"2026-01-31{between}12:00:00{zone}")


@pytest.mark.parametrize("day", ["20260131", "2026-W05-6", "2026W056", "２０２６-01-31"])
def test_every_python_refuses_the_same_days(day: str) -> None:
    """Python 3.11 reads what 3.10 does not: executors of both would make different files of one record."""
    with pytest.raises(Misfit, match="a date such as"):
        read(f'{{"day": "{day}"}}')
    with pytest.raises(Misfit, match="a time such as"):
        read(f'{{"at": "{day}T12:00:00"}}')


@pytest.mark.parametrize("time", ["T1200", "T120000", "T12:00:00+01:00:30.5", "T12:0"])
def test_every_python_refuses_the_same_times(time: str) -> None:
    with pytest.raises(Misfit, match="a time such as"):
        read(f'{{"at": "2026-01-31{time}"}}')


@pytest.mark.parametrize("text", ["2026-01-31", "noon", "2026-01-31T12:00:00+01:00:30", "2026-01-31T12:00:00ZZ", ""])
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert plain_time(text) == text

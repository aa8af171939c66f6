import pyarrow as pa
import pytest

from logyard.spark_jobs.export.schema import ddl
from logyard.spark_jobs.export.schema.ddl import BadSchema
from logyard.spark_jobs.export.schema.evolution import SchemaRefused, check_evolution

FLIGHT = (
    "id BIGINT NOT NULL, `from` STRING, price DECIMAL(10, 2), tags ARRAY<STRING>,"
    " legs ARRAY<STRUCT<at: TIMESTAMP, gate: INT NOT NULL>>, more MAP<STRING, DOUBLE>, `odd name` DATE"
)


def test_a_schema_is_read_and_written_back() -> None:
    schema = ddl.parse(FLIGHT)
    assert schema.field("legs").type == pa.list_(
        pa.struct([("at", pa.timestamp("us", tz="UTC")), pa.field("gate", pa.int32(), nullable=False)])
    )
    assert not schema.field("id").nullable
    assert ddl.parse(ddl.render(schema)) == schema
    assert ddl.render(schema) == FLIGHT.replace("`from`", "from")
    assert ddl.parse("a int,\n b Long\n") == pa.schema([("a", pa.int32()), ("b", pa.int64())])


@pytest.mark.spark
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("spark")
def test_spark_reads_the_same() -> None:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    theirs = to_arrow_schema(StructType.fromDDL(FLIGHT), timezone="UTC")
    assert ddl.render(theirs) == ddl.render(ddl.parse(FLIGHT))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "at letter 1: a name"),
        ("a INT,", "at letter 7: a name is expected, found 'the end'"),
        ("a INTT", "at letter 2: one of BOOLEAN, .* found 'INTT'"),
        ("a ARRAY<INT", "> is expected, found 'the end'"),
        ("a MAP<INT, INT>", "STRING as a map's key"),
        ("a INT b INT", ", or the end is expected"),
        ("a INT, A INT", "column A is there twice"),
        ("a DECIMAL(39, 0)", "at most 38 digits"),
        ("a INT NOT", "NULL is expected"),
        ("a " + "ARRAY<" * 50 + "INT" + ">" * 50, "more than 32 deep"),
    ],
)
def test_what_is_no_schema_is_said_where(text: str, words: str) -> None:
    with pytest.raises(BadSchema, match=words):
        ddl.parse(text)


def test_a_type_without_a_name_is_refused() -> None:
    with pytest.raises(BadSchema, match="uint8"):
        ddl.render(pa.schema([("a", pa.uint8())]))


OLD = "offset BIGINT, value STRUCT<id: BIGINT NOT NULL, legs: ARRAY<STRUCT<gate: INT>>>"


@pytest.mark.parametrize(
    "new",
    [
        OLD,
        f"{OLD}, headers STRING",
        "value STRUCT<legs: ARRAY<STRUCT<gate: INT, at: DATE>>, id: BIGINT NOT NULL, price: DOUBLE>, offset BIGINT",
    ],
)
def test_nullable_columns_may_be_added(new: str) -> None:
    check_evolution(ddl.parse(OLD), ddl.parse(new))


@pytest.mark.parametrize(
    ("new", "words"),
    [
        ("offset BIGINT", "column value: was STRUCT<.*, is missing now"),
        ("offset INT, value STRING", "column offset: was BIGINT, is INT now"),
        ("offset BIGINT, value STRING", "column value: was STRUCT<.*>, is STRING now"),
        (OLD.replace("id: BIGINT NOT NULL", "id: BIGINT"), "column value.id: was BIGINT NOT NULL, is BIGINT now"),
        (OLD.replace("gate: INT", "gate: STRING"), "column value.legs.element.gate: was INT, is STRING now"),
        (f"{OLD}, more INT NOT NULL", "column more: was not there, is INT NOT NULL now"),
    ],
)
def test_everything_else_names_the_column_and_both_types(new: str, words: str) -> None:
    with pytest.raises(SchemaRefused, match=words):
        check_evolution(ddl.parse(OLD), ddl.parse(new))

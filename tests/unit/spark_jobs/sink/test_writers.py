"""What the driver does with its tasks' messages."""

from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from logyard.spark_jobs.data_source.options import BadOption
from logyard.spark_jobs.sink.errors import CannotWrite
from logyard.spark_jobs.sink.progress import Work
from logyard.spark_jobs.sink.rows import Rows
from logyard.spark_jobs.sink.task import Limits, Outcome, PartitionWrite
from logyard.spark_jobs.sink.writers import Message, Sink
from tests.support.memory_kafka import MemoryKafka

SCHEMA = StructType([StructField("value", StringType())])
OPTIONS = {"topic": "t", "kafka.bootstrap.servers": "nowhere:1", "writeId": "w"}


class SinkInMemory(Sink):
    def __init__(self, kafka: MemoryKafka) -> None:
        super().__init__(SCHEMA, False, OPTIONS, stream=False)
        self._kafka = kafka

    def client(self) -> Any:
        return self._kafka.session()


def messages(*outcomes: Outcome) -> list[Message | None]:
    return [None, *(Message(outcome) for outcome in outcomes)]


def test_a_line_for_each_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    sink = SinkInMemory(MemoryKafka())
    sink.finish([])
    sink.finish(messages(Outcome(Work("w", 3, 0, "r"), 1500), Outcome(Work("w", 3, 1, "r"), 7, is_skipped=True)))
    assert capsys.readouterr().err.splitlines() == [
        "w: epoch 3: 1,500 records written in 2 partitions; 7 records in 1 were committed already"
    ]


def test_a_rerun_with_fewer_partitions_is_found_where_nothing_was_left_to_write() -> None:
    kafka = MemoryKafka()
    for partition in range(2):
        work = Work("w", 0, partition, "one")
        PartitionWrite(work, kafka.session(), Limits(60_000, 1)).run([Rows([None], [b"%d" % partition])])
    same = PartitionWrite(Work("w", 0, 0, "two"), kafka.session(), Limits(60_000, 1)).run([Rows([None], [b"0"])])
    with pytest.raises(CannotWrite, match="an earlier run has committed work partition 1, and this run has only 1"):
        SinkInMemory(kafka).finish(messages(same))


@pytest.mark.parametrize(("stream", "text"), [(False, 'mode("overwrite")'), (True, 'outputMode("complete")')])
def test_a_log_is_not_replaced(stream: bool, text: str) -> None:
    with pytest.raises(BadOption) as refused:
        Sink(SCHEMA, True, OPTIONS, stream=stream)
    assert f"{text} replaces what is there, and a log only grows: use append" in str(refused.value)

"""What Spark calls of `df.write` and `df.writeStream`: made on the driver, `write` runs in tasks."""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from logyard.spark_jobs.command import say
from logyard.spark_jobs.data_source.options import BadOption
from logyard.spark_jobs.sink.client import Client
from logyard.spark_jobs.sink.errors import CannotWrite
from logyard.spark_jobs.sink.options import SinkOptions, parse
from logyard.spark_jobs.sink.progress import Work
from logyard.spark_jobs.sink.rows import check_schema, rows_of
from logyard.spark_jobs.sink.task import Limits, Outcome, PartitionWrite, committed_partitions

# How Spark tells a task which query and micro-batch it works for.
QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass
class Message(WriterCommitMessage):  # type: ignore[misc]  # pyspark has no types here
    """What a task tells the driver."""

    outcome: Outcome


class Sink:
    """What both writers share: checked options, and one work partition's write."""

    def __init__(self, schema: Any, overwrite: bool, options: Mapping[str, str], *, stream: bool) -> None:
        if overwrite:
            said = 'outputMode("complete") replaces' if stream else 'mode("overwrite") replaces'
            raise BadOption(f"{said} what is there, and a log only grows: use append")
        self.options: SinkOptions = parse(options, stream=stream)
        check_schema([(field.name, field.dataType.simpleString()) for field in schema.fields], self.options.topic)
        self._run = uuid.uuid4().hex[:12]

    def client(self) -> Client:
        chosen = self.options
        return Client(chosen.client, chosen.progress_topic, chosen.timeout_ms, chosen.topic)

    def write_partition(self, batches: Iterator[pa.RecordBatch], write_id: str, epoch: int) -> Message:
        """Write the rows of the task that runs here."""
        work = Work(write_id, epoch, TaskContext.get().partitionId(), self._run)
        client = self.client()
        client.check_topic(self.options.progress_topic)
        limits = Limits(self.options.timeout_ms, self.options.wait_s, self.options.compare)
        return Message(PartitionWrite(work, client, limits).run(rows_of(batch) for batch in batches))

    def finish(self, messages: Sequence[Message | None]) -> None:
        """Report on the driver what was written; raises CannotWrite if an earlier run had committed more partitions."""
        outcomes = [message.outcome for message in messages if message is not None]
        if not outcomes:
            return
        work = outcomes[0].work
        if self.options.compare and any(outcome.is_rerun for outcome in outcomes):
            mine = {outcome.work.partition for outcome in outcomes}
            if strange := sorted(committed_partitions(self.client(), work.write_id, work.epoch).keys() - mine):
                raise CannotWrite(
                    f"{work.write_id}: epoch {work.epoch}: an earlier run has committed work partition {strange[0]},"
                    f" and this run has only {len(mine)}: its rows were split in another way"
                )
        written = sum(outcome.records for outcome in outcomes if not outcome.is_skipped)
        found = [outcome.records for outcome in outcomes if outcome.is_skipped]
        known = f"; {sum(found):,} records in {len(found)} were committed already" if found else ""
        say(f"{work.write_id}: epoch {work.epoch}: {written:,} records written in {len(outcomes)} partitions{known}")


class LogyardWriter(DataSourceArrowWriter):  # type: ignore[misc]  # pyspark has no types here
    """`df.write`: the epoch is an option."""

    def __init__(self, schema: Any, overwrite: bool, options: Mapping[str, str]) -> None:
        self._sink = Sink(schema, overwrite, options, stream=False)
        # Without a name of its own a write is exactly once within its job, and done again by the next job.
        self._write_id = self._sink.options.write_id or f"spark-{uuid.uuid4().hex}"
        self._sink.client().check_topic(self._sink.options.progress_topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        return self._sink.write_partition(iterator, self._write_id, self._sink.options.epoch)

    def commit(self, messages: list[Message | None]) -> None:
        self._sink.finish(messages)


class LogyardStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]  # pyspark has no types here
    """`df.writeStream`: the epoch is the micro-batch's number. Spark makes one for a batch's tasks, and another for its
    commit."""

    def __init__(self, schema: Any, overwrite: bool, options: Mapping[str, str]) -> None:
        self._sink = Sink(schema, overwrite, options, stream=True)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        task = TaskContext.get()
        query, batch = task.getLocalProperty(QUERY_ID), task.getLocalProperty(BATCH_ID)
        if batch is None:
            raise CannotWrite(f"Spark names no micro-batch ({BATCH_ID}): the sink needs Spark 4.1 or 4.2")
        write_id = self._sink.options.write_id or (f"spark-{query}" if query else None)
        if write_id is None:
            raise CannotWrite(f"Spark does not name the query ({QUERY_ID}): give the option writeId")
        return self._sink.write_partition(iterator, write_id, int(batch))

    def commit(self, messages: list[Message | None], batchId: int) -> None:
        self._sink.finish(messages)

"""The sink of `format("logyard")` with a death: at one step of one task, or between a stream's commit and Spark's note
of it. Each death happens once: a file says so.
"""

import os
import signal
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from logyard.spark_jobs.sink.client import LibrdkafkaTransactions
from logyard.spark_jobs.sink.writers import LogyardStreamWriter, LogyardWriter, Message
from logyard.spark_jobs.source import PushingDataSource

# What can be killed: the task's Python, or the driver with its JVM.
STEPS = (
    "plan before start",
    "plan after start",
    "plan after offsets",
    "plan after commit",
    "before start",
    "after start",
    "after begin",
    "before offsets",
    "after offsets",
    "after commit",
)
DRIVER_COMMITS = "driver commits"


class Death:
    """`step`: one of STEPS, in the task of `partition`; or DRIVER_COMMITS. `pids`: who dies, () for the task alone."""

    def __init__(self, step: str, partition: int, marker: str, pids: Sequence[int] = ()) -> None:
        self.step, self.partition, self.marker, self.pids = step, partition, marker, tuple(pids)

    def strike(self, step: str) -> None:
        if step != self.step:
            return
        try:
            os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        for pid in (*self.pids, os.getpid()):
            os.kill(pid, signal.SIGKILL)

    def watch_task(self) -> None:
        """Have this process die at the step, if its task is the one."""
        if TaskContext.get().partitionId() != self.partition and not self.step.startswith("plan"):
            return
        attempt = LibrdkafkaTransactions.attempt

        def watched(transactions: LibrdkafkaTransactions, name: str, action: Any) -> None:
            whose = "plan " if transactions.name.endswith("-plan") else ""
            self.strike(f"{whose}before {name}")
            attempt(transactions, name, action)
            self.strike(f"{whose}after {name}")

        setattr(LibrdkafkaTransactions, "attempt", watched)  # noqa: B010, mypy forbids to assign methods


class DyingWriter(LogyardWriter):
    def __init__(self, death: Death, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._death = death

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        self._death.watch_task()
        return super().write(iterator)


class DyingStreamWriter(LogyardStreamWriter):
    def __init__(self, death: Death, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._death = death

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        self._death.watch_task()
        return super().write(iterator)

    def commit(self, messages: list[Message | None], batchId: int) -> None:
        super().commit(messages, batchId)
        self._death.strike(DRIVER_COMMITS)


class DyingSource(PushingDataSource):
    death: Death

    def writer(self, schema: Any, overwrite: bool) -> DyingWriter:
        return DyingWriter(self.death, schema, overwrite, dict(self.options))

    def streamWriter(self, schema: Any, overwrite: bool) -> DyingStreamWriter:
        return DyingStreamWriter(self.death, schema, overwrite, dict(self.options))


def register(spark: Any, death: Death) -> None:
    """Make the format known with that death."""
    spark.dataSource.register(type("DyingSource", (DyingSource,), {"death": death}))

"""One work partition's write, from the first row to its commit: what a Spark task does.

    no row: nothing is written
    1. plan      is this epoch begun? else begin it, in a transaction of the plan's own id
    2. start     the partition's producer: every earlier attempt is fenced from here on
    3. look      the partition's own committed epoch: this one → compare the rows, write nothing
    4. verify    if another run began the epoch: wait until the partitions that are committed have been compared
    5. send      in one transaction
    6. commit    records and epoch together

A task that dies at any point leaves either nothing or the whole; the next attempt finds which in step 3.
"""

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from logyard.spark_jobs.sink.errors import CannotWrite, Fenced
from logyard.spark_jobs.sink.ports import Kafka, Transactions
from logyard.spark_jobs.sink.progress import (
    Plan,
    Work,
    Written,
    check_age,
    check_same,
    decode_plan,
    decode_written,
    encode,
    number_of,
)
from logyard.spark_jobs.sink.rows import DIGEST_BYTES, Rows, add, digest

# Of the transaction's time, what is left for the commit.
COMMIT_SHARE = 0.1
_LOOK_AGAIN_S = 0.5
# How long a partition leaves it to those before it to begin an epoch, for each of them and at most.
_TURN_S, _TURNS = 0.05, 10


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a transaction may be open, and how long to wait for other partitions; whether reruns are compared."""

    timeout_ms: int
    wait_s: float
    compare: bool = True


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a work partition. `rerun`: another run began the epoch."""

    work: Work
    records: int
    is_skipped: bool = False
    is_rerun: bool = False


class PartitionWrite:
    """Writes one work partition of one epoch."""

    def __init__(
        self,
        work: Work,
        kafka: Kafka,
        limits: Limits,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._work, self._kafka, self._limits = work, kafka, limits
        self._clock, self._sleep = clock, sleep

    def run(self, batches: Iterable[Rows]) -> Outcome:
        """Write the rows, or find that they are written; raises CannotWrite."""
        rest = iter(batches)
        first = next((rows for rows in rest if len(rows)), None)
        if first is None:
            return self._nothing_to_write()
        rows = chain([first], rest)
        plan = self._begin_epoch()
        is_rerun = plan.run != self._work.run
        producer = self._kafka.transactions(self._work.id)
        try:
            producer.start()
            written = self._written()
            if written is not None:
                self._compare(written, rows)
                if is_rerun and not written.known_to(self._work.run):
                    producer.begin()
                    checked = replace(written, checked=self._work.run)
                    producer.commit(self._work.id, self._work.epoch, encode(checked))
                return Outcome(self._work, written.records, is_skipped=True, is_rerun=is_rerun)
            if is_rerun:
                self._await_verified()
            return Outcome(self._work, self._write(producer, rows), is_rerun=is_rerun)
        finally:
            producer.close()

    def _nothing_to_write(self) -> Outcome:
        written = self._written()
        if written is not None:
            self._compare(written, ())
        return Outcome(self._work, 0)

    def _begin_epoch(self) -> Plan:
        """Return the plan of this epoch; make it if it is new. Of many tasks at once one makes it, mostly the first."""
        turn = self._clock() + min(self._work.partition, _TURNS) * _TURN_S
        while True:
            plan = self._plan()
            if plan is not None and plan.epoch == self._work.epoch:
                return plan
            if self._clock() < turn:
                self._sleep(_TURN_S)
                continue
            producer = self._kafka.transactions(self._work.plan_id)
            try:
                producer.start()
                if self._plan() == plan:  # nobody changes it now without fencing this producer
                    producer.begin()
                    own = Plan(self._work.epoch, self._work.run)
                    producer.commit(self._work.plan_id, self._work.epoch, encode(own))
                    return own
            except Fenced:
                self._sleep(random.uniform(0, _LOOK_AGAIN_S))
            finally:
                producer.close()

    def _plan(self) -> Plan | None:
        group = self._work.plan_id
        plan = decode_plan(group, settled(self._kafka, [group])[group])
        check_age(self._work, None if plan is None else plan.epoch)
        return plan

    def _written(self) -> Written | None:
        """Return what the partition has committed for this epoch, None if nothing; raises for a later epoch."""
        group = self._work.id
        written = decode_written(group, settled(self._kafka, [group])[group])
        check_age(self._work, None if written is None else written.epoch)
        return written if written is not None and written.epoch == self._work.epoch else None

    def _compare(self, written: Written, batches: Iterable[Rows]) -> None:
        if not self._limits.compare:
            return
        records, total = 0, 0
        for rows in batches:
            records += len(rows)
            total = add(total, digest(rows))
        check_same(self._work, written, records, _text(total))

    def _await_verified(self) -> None:
        """Return when this run has compared every partition that an earlier run committed for the epoch.

        Tasks begin in the order of their partitions, so those that wait here are fewer than the first run had slots
        (what is behind a committed partition had begun before it). With as many slots there is always one to compare.
        """
        deadline = self._clock() + self._limits.wait_s
        while True:
            unknown = [n for n, one in sorted(self._committed().items()) if not one.known_to(self._work.run)]
            if not unknown:
                return
            if self._clock() >= deadline:
                raise CannotWrite(
                    f"{self._work}: an earlier run has committed work partition {unknown[0]}, and after"
                    f" {self._limits.wait_s:.0f} s this run has not compared it: split the work as before, and give"
                    " Spark as many cores as before, or more time with verifyWaitS"
                )
            self._sleep(_LOOK_AGAIN_S)

    def _committed(self) -> dict[int, Written]:
        return committed_partitions(self._kafka, self._work.write_id, self._work.epoch)

    def _write(self, producer: Transactions, batches: Iterable[Rows]) -> int:
        records, total = 0, 0
        producer.begin()
        for rows in self._in_time(batches):
            producer.send(rows)
            records += len(rows)
            total = add(total, digest(rows))
        self._plan()  # raises if another driver is at a later epoch by now
        written = Written(self._work.epoch, records, _text(total), self._work.run)
        producer.commit(self._work.id, self._work.epoch, encode(written))
        return records

    def _in_time(self, batches: Iterable[Rows]) -> Iterator[Rows]:
        """Yield the batches; raises CannotWrite when the transaction would run out of time."""
        limit_s = self._limits.timeout_ms / 1000 * (1 - COMMIT_SHARE)
        begun, records = self._clock(), 0
        for rows in batches:
            taken = self._clock() - begun
            if taken > limit_s:
                raise CannotWrite(
                    f"{self._work}: {records} records in {taken:.0f} s, and its transaction ends after"
                    f" {self._limits.timeout_ms / 1000:.0f} s: cut the work into more partitions (repartition), or"
                    " raise transactionTimeoutMs (brokers allow up to their transaction.max.timeout.ms)"
                )
            yield rows
            records += len(rows)


def committed_partitions(kafka: Kafka, write_id: str, epoch: int) -> dict[int, Written]:
    """Return the work partitions that have committed this epoch, by number."""
    # Others are left alone: a producer of another write that stands in its commit would be fenced.
    numbers = {group: number_of(write_id, group) for group in kafka.groups(f"{write_id}-")}
    mine = {group: number for group, number in numbers.items() if number is not None}
    found = {}
    for group, metadata in settled(kafka, list(mine)).items():
        written = decode_written(group, metadata)
        if written is not None and written.epoch == epoch:
            found[mine[group]] = written
    return found


def settled(kafka: Kafka, groups: Sequence[str]) -> Mapping[str, str | None]:
    """Return each group's committed metadata. A transaction that a dead attempt left open on one is ended first, by a
    producer of its id: a group has the name of the only id that commits to it."""
    found = dict(kafka.committed(groups))
    for group in groups:
        if group not in found:
            producer = kafka.transactions(group)
            try:
                producer.start()
            finally:
                producer.close()
            found |= kafka.committed([group])
        if group not in found:
            raise CannotWrite(f"group {group}: a transaction on it does not end: look whether the brokers are well")
    return found


def _text(total: int) -> str:
    return f"{total:0{2 * DIGEST_BYTES}x}"

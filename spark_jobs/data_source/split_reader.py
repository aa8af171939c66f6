"""Reading one split under its lease, in a task that may start long after the plan was made: the task renews the lease
while it reads, and if the lease is gone it takes another and reads the rest of the split under that.

That is safe if the replica still holds the planned records: the same topic, the split's offsets, and the same leader
epochs up to the split's end (segments/epochs.py). Records that were deleted or truncated meanwhile are an error, never
missing rows.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa

from logyard.spark_jobs.cluster import run_id
from logyard.spark_jobs.leases.broker_http import LeaseError
from logyard.spark_jobs.leases.client import Lease, acquire
from logyard.spark_jobs.leases.heartbeats import PASSING
from logyard.spark_jobs.segments.epochs import epoch_before, kept_until
from logyard.spark_jobs.segments.replicas import Replica, of_leased
from logyard.spark_jobs.segments.splits import Range, Split, plan_splits, split_rows

BEAT_S = 60.0
TTL_MS = 600_000  # no broker grants more
# New leases per split at most, and the pause between attempts while a replica has too many leases.
RETAKES, PAUSE_S = 3, 5.0
GONE = ("unknown_lease", "lease_ended")


class Changed(LeaseError):
    """The replica no longer holds the planned records."""

    def __init__(self, message: str) -> None:
        super().__init__("changed", message)

    def __reduce__(self) -> tuple[type["Changed"], tuple[str]]:
        return Changed, (str(self),)


class SplitReader:
    """Reads one split, once."""

    def __init__(self, split: Split) -> None:
        self._split, self._at = split, split.start
        self._own: Lease | None = None
        self._retakes = 0
        self._beaten = float("-inf")

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the split's rows in its columns; raises LeaseError, Changed, CorruptBatch."""
        wanted = self._split.columns
        columns = wanted if "offset" in wanted else ("offset", *wanted)
        left = [replace(self._split, columns=columns)]
        try:
            while left:
                try:
                    for batch, _ in split_rows(left[0]):
                        yield batch if columns is wanted else batch.select(list(wanted))
                        self._at = batch.column("offset")[-1].as_py() + 1
                        self._beat(left[0].segment.lease)
                    self._at = max(self._at, left.pop(0).end)
                except (LeaseError, FileNotFoundError) as error:
                    lease = left[0].segment.lease
                    if lease is None or not _is_gone(error) or self._retakes == RETAKES:
                        raise
                    left = self._again(lease, columns)
        finally:
            self._end()

    def _beat(self, lease: Lease | None) -> None:
        """Renew the lease if it is time; raises LeaseError if it is gone."""
        if lease is None or time.monotonic() - self._beaten < min(BEAT_S, _ttl_ms(lease) / 3000):
            return
        self._beaten = time.monotonic()
        try:
            lease.heartbeat()
        except LeaseError as error:
            if error.code not in PASSING:
                raise

    def _again(self, lost: Lease, columns: tuple[str, ...]) -> list[Split]:
        """Take a new lease on the replica and plan the rest of the split."""
        self._end()
        self._retakes += 1
        self._own = _acquire(lost)
        replica = of_leased(self._own)
        _check_same(of_leased(lost), replica, self._at, self._split.end)
        split = self._split
        rest = Range(replica, self._at, split.end)
        found = plan_splits(rest, committed_only=split.committed_only, columns=columns, split_bytes=1 << 62)
        return [replace(one, newer_ms=split.newer_ms, control=split.control) for one in found]

    def _end(self) -> None:
        if self._own is not None:
            self._own.abort("its split is read")
            self._own = None


def _is_gone(error: Exception) -> bool:
    return isinstance(error, FileNotFoundError) or (isinstance(error, LeaseError) and error.code in GONE)


def _ttl_ms(lease: Lease) -> int:
    """Return the lease's time to live: `now_ms` is of before its files were linked, its end is counted from after."""
    with suppress(KeyError):
        return min(int(lease.details["expires_at_ms"]) - int(lease.details["now_ms"]), TTL_MS)
    return TTL_MS


def _acquire(lost: Lease) -> Lease:
    """Take a lease on the same replica under a run id of this task: with the run's own id, a task's lease would replace
    those of other tasks. The token of a run is for run ids that begin with its own and a slash, too."""
    name, deadline = f"{lost.details.get('run_id', 'read')}/{run_id('task')}", time.monotonic() + _ttl_ms(lost) / 1000
    while True:
        try:
            return acquire(lost.broker, lost.topic, lost.partition, name, lost.purpose, _ttl_ms(lost))
        except LeaseError as error:
            if error.code not in ("too_many_leases", "starting") or time.monotonic() > deadline:
                raise
        time.sleep(PAUSE_S)


def _check_same(old: Replica, new: Replica, at: int, end: int) -> None:
    """Raise Changed unless the replica still holds the same records at offsets [at, end)."""
    lost = f"{new.tp}: the lease on broker {new.broker_id} was lost while offsets {at} to {end - 1} waited to be read"
    if new.topic_id != old.topic_id:
        raise Changed(f"{lost}, and the topic was deleted and created again: read again")
    if new.log_start_offset > at:
        raise Changed(f"{lost}, and offsets below {new.log_start_offset} were deleted: read again")
    kept = kept_until(new.leader_epochs, new.log_end_offset, end, epoch_before(old.leader_epochs, end))
    if kept < end:
        raise Changed(f"{lost}, and the log has lost its records from {kept} on: read again")

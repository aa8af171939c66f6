"""What a write's groups say in Kafka: how far each work partition is, and which epoch is begun. Pure.

A work partition's group is `{writeId}-{partition}`, the plan's is `{writeId}-plan`. Each has one committed offset, on
partition 0 of the progress topic: the epoch + 1, with these values as its metadata.
"""

import json
from dataclasses import asdict, dataclass

from logyard.spark_jobs.sink.errors import CannotWrite

PLAN = "plan"


@dataclass(frozen=True, slots=True)
class Work:
    """One work partition of one epoch of a write. `run` names the one execution of the epoch by a driver: its tasks
    share it, however often Spark repeats them; a restarted driver has another."""

    write_id: str
    epoch: int
    partition: int
    run: str

    @property
    def id(self) -> str:
        """The transactional id, and the group, of this work partition."""
        return f"{self.write_id}-{self.partition}"

    @property
    def plan_id(self) -> str:
        """The transactional id, and the group, of the write's plan."""
        return f"{self.write_id}-{PLAN}"

    def __str__(self) -> str:
        return f"{self.write_id}: epoch {self.epoch}, work partition {self.partition}"


@dataclass(frozen=True, slots=True)
class Written:
    """What a work partition committed last, and by which run. `checked` names the latest other run that held the same
    records for it, "" before."""

    epoch: int
    records: int
    digest: str
    run: str
    checked: str = ""

    def known_to(self, run: str) -> bool:
        """Whether this run wrote the partition, or has compared it with its own."""
        return run in (self.run, self.checked)


@dataclass(frozen=True, slots=True)
class Plan:
    """The latest epoch of a write, and the run that began it."""

    epoch: int
    run: str


def encode(value: Written | Plan) -> str:
    return json.dumps(asdict(value), sort_keys=True, separators=(",", ":"))


def decode_written(group: str, metadata: str | None) -> Written | None:
    """Return what a partition's group says, None if it says nothing; raises CannotWrite if it is not ours."""
    if metadata is None:
        return None
    try:
        return Written(**json.loads(metadata))
    except (ValueError, TypeError):
        raise _not_ours(group) from None


def decode_plan(group: str, metadata: str | None) -> Plan | None:
    """Return what the plan's group says, None if it says nothing; raises CannotWrite if it is not ours."""
    if metadata is None:
        return None
    try:
        return Plan(**json.loads(metadata))
    except (ValueError, TypeError):
        raise _not_ours(group) from None


def _not_ours(group: str) -> CannotWrite:
    return CannotWrite(f"group {group} holds offsets that are not of this format: choose another writeId")


def number_of(write_id: str, group: str) -> int | None:
    """Return the work partition that a group is of; None for the write's plan, and for another write whose name begins
    like this one's."""
    number = group.removeprefix(f"{write_id}-")
    return int(number) if number != group and number.isascii() and number.isdigit() else None


def check_age(work: Work, latest: int | None) -> None:
    """Raise CannotWrite if a later epoch has begun."""
    if latest is not None and latest > work.epoch:
        raise CannotWrite(
            f"{work}: epoch {latest} has begun already: another driver is ahead, or the checkpoint or the option epoch"
            " is an older one; continue from the newer one, or choose another writeId"
        )


def check_same(work: Work, written: Written, records: int, digest: str) -> None:
    """Raise CannotWrite unless these records are what the work partition has committed."""
    if (written.records, written.digest) != (records, digest):
        raise CannotWrite(
            f"{work} is committed with {written.records} records, and is {records} other records now: nothing is"
            " written. Split the work as before (repartition by a column), or choose another writeId or epoch for new"
            " data; compareContent=false keeps what is committed and skips the partition"
        )

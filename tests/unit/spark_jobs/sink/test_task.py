"""One work partition's write, killed and overtaken at every step."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import pytest

from logyard.spark_jobs.sink.errors import CannotWrite, Fenced
from logyard.spark_jobs.sink.progress import Work, Written, encode
from logyard.spark_jobs.sink.rows import Rows
from logyard.spark_jobs.sink.task import Limits, Outcome, PartitionWrite, committed_partitions
from tests.support.memory_kafka import Killed, MemoryKafka, Session

EVENTS = [b"%d" % n for n in range(12)]
SPLITS = {
    3: [EVENTS[0:4], EVENTS[4:8], EVENTS[8:12]],
    2: [EVENTS[0:6], EVENTS[6:12]],
    4: [EVENTS[n::4] for n in range(4)],
}


def rows(values: Sequence[bytes]) -> list[Rows]:
    """Two batches, with an empty one before and between."""
    half = len(values) // 2
    parts: list[Sequence[bytes]] = [[], values[:half], [], values[half:]]
    return [Rows(keys=[None] * len(part), values=part) for part in parts]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(seconds, 0.01)


def write(
    session: Session,
    partition: int,
    values: Sequence[bytes],
    *,
    run: str = "one",
    epoch: int = 0,
    compare: bool = True,
) -> Outcome:
    clock = Clock()
    work = Work("w", epoch, partition, run)
    limits = Limits(timeout_ms=60_000, wait_s=5, compare=compare)
    return PartitionWrite(work, session, limits, clock, clock.sleep).run(rows(values))


def kill_at(number: int) -> Callable[[str], None]:
    """Raise Killed at the step of this number."""
    left = [number]

    def step(_: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Killed

    return step


def steps_of(act: Callable[[Session], object]) -> int:
    seen: list[str] = []
    act(MemoryKafka().session(seen.append))
    return len(seen)


STEPS = steps_of(lambda session: write(session, 0, EVENTS))


def test_a_task_that_dies_at_any_step_is_repeated_and_writes_once() -> None:
    assert STEPS > 8
    for number in range(STEPS):
        kafka = MemoryKafka()
        with pytest.raises(Killed):
            write(kafka.session(kill_at(number)), 0, EVENTS)
        assert kafka.records in ([], EVENTS), "all or nothing"
        outcome = write(kafka.session(), 0, EVENTS)
        assert kafka.records == EVENTS
        assert outcome.records == len(EVENTS)


def test_a_restarted_driver_after_a_death_at_any_step_writes_once() -> None:
    for partition in range(3):
        for number in range(STEPS):
            kafka = MemoryKafka()
            for done in range(partition):
                write(kafka.session(), done, SPLITS[3][done])
            with suppress(Killed):  # later partitions take fewer steps: the plan is there
                write(kafka.session(kill_at(number)), partition, SPLITS[3][partition])
            outcomes = [write(kafka.session(), n, SPLITS[3][n], run="two") for n in range(3)]
            assert sorted(kafka.records) == sorted(EVENTS)
            assert [outcome.is_skipped for outcome in outcomes[:partition]] == [True] * partition


@pytest.mark.parametrize("run", ["one", "two"])
def test_two_attempts_at_once_write_once(run: str) -> None:
    """The second begins and ends while the first stands at any step: speculation, zombies, two drivers."""
    for number in range(STEPS):
        kafka = MemoryKafka()
        left = [number]

        def overtake(_: str, left: list[int] = left, kafka: MemoryKafka = kafka) -> None:
            left[0] -= 1
            if left[0] == -1:
                write(kafka.session(), 0, EVENTS, run=run)

        try:
            outcome = write(kafka.session(overtake), 0, EVENTS)
        except Fenced:
            pass
        else:
            assert outcome.records == len(EVENTS)
        assert kafka.records == EVENTS
        assert left[0] < 0


@pytest.mark.parametrize("count", [2, 4])
def test_a_rerun_with_another_split_writes_nothing(count: int) -> None:
    """Whichever partition was committed, and in whatever order the rerun's tasks come."""
    for committed in range(3):
        kafka = MemoryKafka()
        write(kafka.session(), committed, SPLITS[3][committed])
        before = list(kafka.records)
        refused = 0
        for partition in range(count):
            try:
                write(kafka.session(), partition, SPLITS[count][partition], run="two")
            except CannotWrite:
                refused += 1
        assert kafka.records == before
        assert refused == count


def test_a_rerun_waits_until_what_is_committed_was_compared() -> None:
    kafka = MemoryKafka()
    write(kafka.session(), 2, SPLITS[3][2])
    with pytest.raises(CannotWrite, match="has committed work partition 2, and after 5 s this run has not compared it"):
        write(kafka.session(), 0, SPLITS[3][0], run="two")
    assert kafka.records == SPLITS[3][2]

    compared = [False]

    def another_task(step: str) -> None:
        if step == "before groups" and not compared[0]:
            compared[0] = True
            assert write(kafka.session(), 2, SPLITS[3][2], run="two").is_skipped

    write(kafka.session(another_task), 0, SPLITS[3][0], run="two")
    assert compared[0]
    assert kafka.records == SPLITS[3][2] + SPLITS[3][0]


def test_other_rows_are_refused_and_the_line_says_what_to_do() -> None:
    kafka = MemoryKafka()
    write(kafka.session(), 0, EVENTS)
    for other in (EVENTS[:-1], [*EVENTS[:-1], b"other"], []):
        with pytest.raises(CannotWrite, match=f"committed with 12 records, and is {len(other)} other records now"):
            write(kafka.session(), 0, other, run="two")
    assert kafka.records == EVENTS
    assert write(kafka.session(), 0, EVENTS[::-1], run="two").is_skipped, "their order does not matter"
    assert write(kafka.session(), 0, [b"other"], run="two", compare=False).is_skipped
    assert kafka.records == EVENTS


def test_epochs_go_on_and_never_back() -> None:
    kafka = MemoryKafka()
    for epoch in (0, 1, 5):
        assert not write(kafka.session(), 0, EVENTS, epoch=epoch).is_skipped
    assert kafka.records == EVENTS * 3
    for partition in (0, 1):
        with pytest.raises(CannotWrite, match="epoch 5 has begun already: another driver is ahead"):
            write(kafka.session(), partition, EVENTS, epoch=4)
    assert kafka.records == EVENTS * 3


def test_a_driver_that_falls_behind_while_it_writes_stops() -> None:
    kafka = MemoryKafka()

    def overtaken(step: str) -> None:
        if step == "after send":
            write(kafka.session(), 1, [b"of epoch 1"], epoch=1)

    with pytest.raises(CannotWrite, match="epoch 1 has begun already"):
        write(kafka.session(overtaken), 0, EVENTS)
    assert kafka.records == [b"of epoch 1"]


def test_an_empty_partition_asks_and_writes_nothing() -> None:
    kafka = MemoryKafka()
    steps: list[str] = []
    assert write(kafka.session(steps.append), 0, []).records == 0
    assert (steps, kafka.offsets) == (["before committed"], {})


def test_a_partition_that_takes_too_long_says_so_before_its_transaction_ends() -> None:
    kafka, clock = MemoryKafka(), Clock()
    work = PartitionWrite(Work("w", 3, 1, "one"), kafka.session(), Limits(10_000, 5), clock, clock.sleep)

    def slow() -> Iterator[Rows]:
        for part in rows(EVENTS):
            yield part
            clock.now += 6

    with pytest.raises(CannotWrite, match="6 records in 12 s") as refused:
        work.run(slow())
    assert "cut the work into more partitions (repartition), or raise transactionTimeoutMs" in str(refused.value)
    assert kafka.records == []


def test_the_driver_finds_what_an_epoch_committed() -> None:
    kafka = MemoryKafka()
    for partition in (0, 2, 11):
        write(kafka.session(), partition, EVENTS)
    write(kafka.session(), 0, EVENTS, epoch=1)
    kafka.offsets["w-other"] = kafka.offsets["wider-1"] = "not ours"
    assert set(committed_partitions(kafka.session(), "w", 0)) == {2, 11}
    assert set(committed_partitions(kafka.session(), "w", 1)) == {0}


def test_another_write_whose_name_begins_like_it_is_left_alone() -> None:
    """Its task stands in its commit, for longer than offsets are waited for."""
    kafka, other = MemoryKafka(), Work("w-other", 1, 0, "one")
    write(kafka.session(), 0, EVENTS)
    kafka.offsets[other.id] = encode(Written(0, 0, "", "one"))
    looks = list[set[int]]()

    def look(step: str) -> None:
        if step == "after offsets" and other.id in kafka.pending:
            looks.append(set(committed_partitions(kafka.session(), "w", 0)))

    outcome = PartitionWrite(other, kafka.session(look), Limits(timeout_ms=60_000, wait_s=5)).run(rows(EVENTS))
    assert (outcome.records, looks) == (len(EVENTS), [{0}])


def test_offsets_of_somebody_else_are_told() -> None:
    kafka = MemoryKafka()
    kafka.offsets["w-0"] = "a consumer's"
    with pytest.raises(
        CannotWrite, match="group w-0 holds offsets that are not of this format: choose another writeId"
    ):
        write(kafka.session(), 0, EVENTS)

"""The topics of a job, some side by side: each has a run of its own, and its failure is its own. Driver only."""

import argparse
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from logyard.spark_jobs.command import positive, say, told
from logyard.spark_jobs.errors import JobFailed, SparkGone

Part = TypeVar("Part")

# How many topics a job works on at once. More only wait for the same cores, and hold their leases meanwhile.
AT_ONCE = 4
# How many failed topics a line names.
NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class Turn(Generic[Part]):
    """What became of a topic: its part (None if it has none), why it failed ("" if it did not), and how long it took.

    A topic of which only some partitions failed has both.
    """

    topic: str
    part: Part | None
    failure: str
    seconds: float


class Turns(Generic[Part]):
    """The turns of a job's topics, in the order of the topics."""

    def __init__(self, turns: Sequence[Turn[Part]]) -> None:
        self._turns = turns

    @property
    def parts(self) -> list[Part]:
        return [turn.part for turn in self._turns if turn.part is not None]

    @property
    def failed(self) -> dict[str, str]:
        """The topics that failed, and why."""
        return {turn.topic: turn.failure for turn in self._turns if turn.failure}

    def rows(self, row: Callable[[Part], Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        """Return the summary's row for each topic: `failed` (why, or None), `seconds`, and what `row` makes of its
        part."""
        return {
            turn.topic: {
                "failed": turn.failure or None,
                "seconds": round(turn.seconds, 2),
                **(row(turn.part) if turn.part is not None else {}),
            }
            for turn in self._turns
        }


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that says how many topics a job works on side by side."""
    parser.add_argument(
        "--topics-at-once",
        type=positive,
        default=AT_ONCE,
        metavar="N",
        help=f"how many topics are worked on side by side, each under its own leases ({AT_ONCE})",
    )


def take_turns(
    job: str,
    topics: Sequence[str],
    work: Callable[[str], tuple[Part, str]],
    at_once: int = AT_ONCE,
) -> Turns[Part]:
    """Call `work` for every topic, at most `at_once` at the same time, in threads; returns what became of each.

    A topic whose `work` raises has failed, and the others go on. After SparkGone no topic begins: the rest fail for the
    same reason. Raises the failure of a job's only topic, if that has no part.

    :param work: returns the topic's part, and why it failed ("" if it did not).
    """
    wanted = list(dict.fromkeys(topics))
    lock = threading.Lock()
    count, gone = 0, ""

    def turn(topic: str) -> Turn[Part]:
        nonlocal count, gone
        began = time.monotonic()
        part, failure = None, gone
        if not failure:
            try:
                part, failure = work(topic)
            except Exception as error:
                failure = told(error)
                gone = failure if isinstance(error, SparkGone) else gone
        done = Turn(topic, part, failure, time.monotonic() - began)
        with lock:
            count += 1
            if len(wanted) > 1:
                said = f"failed: {failure}" if failure else "is done"
                say(f"{job}: {topic} {said} ({count:,} of {len(wanted):,} topics, {done.seconds:.1f} s)")
        return done

    with ThreadPoolExecutor(max(at_once, 1), thread_name_prefix=f"{job}-topic") as pool:
        try:
            turns = list(pool.map(turn, wanted))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    if len(turns) == 1 and turns[0].part is None:
        raise JobFailed(turns[0].failure)
    made = Turns(turns)
    if made.failed and len(wanted) > 1:
        say(f"{job}: {failed_words(made.failed, len(wanted))}")
    return made


def failed_words(failed: Mapping[str, str], count: int) -> str:
    """`2 of 200 topics failed: a, b`, for the end of a log."""
    names = list(failed)
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return f"{len(names):,} of {count:,} topics failed: {', '.join(names[:NAMED_MAX])}{more}"

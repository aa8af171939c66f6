"""What the findings need beside the snapshot: settings, first and last offsets, how long nothing was written, and
hanging transactions. Each part may fail alone."""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TypeVar

from logyard.admin.cluster.snapshot import ClusterSnapshot, ConfigValue
from logyard.admin.errors import LogyardError
from logyard.admin.ports import EARLIEST, DescribingClient
from logyard.admin.transactions.hanging import find_hanging
from logyard.admin.transactions.transactions import OpenTransaction
from logyard.broker.model import TopicPartition
from logyard.plugins.logyard_ui.cluster.lag import read_ends
from logyard.plugins.logyard_ui.cluster.transactions import TIMEOUT_MS
from logyard.plugins.logyard_ui.responses.optional_parts import error_line

T = TypeVar("T")

DAY_MS = 86_400_000
# A topic is idle when nothing was written for the first of these; the others say for how long.
IDLE_DAYS = (7, 30, 90, 365)
# Beyond these the reads would take too long for a page.
SETTINGS_MAX = 2_000
SEARCHED_MAX = 5_000


@dataclass(frozen=True, slots=True)
class Gathered:
    """None: not known; `problems` says why, by the part's name.

    `settings`: topic → its settings, of the first SETTINGS_MAX topics by name. `starts`, `ends`: first and end offsets.
    `idle_days`: topic → days without a record, of those that are idle. `hanging`: on the first SEARCHED_MAX partitions.
    """

    settings: Mapping[str, Mapping[str, ConfigValue]] | None = None
    starts: Mapping[TopicPartition, int] | None = None
    ends: Mapping[TopicPartition, int] | None = None
    idle_days: Mapping[str, int] | None = None
    hanging: Sequence[OpenTransaction] | None = None
    problems: Mapping[str, str] = field(default_factory=dict)


def gather(client: DescribingClient, snapshot: ClusterSnapshot, now_ms: int) -> Gathered:
    """Read all parts, one after the other."""
    problems: dict[str, str] = {}

    def part(name: str, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except LogyardError as problem:
            problems[name] = error_line(problem)
            return None

    partitions = [tp for tp, _ in snapshot.partitions()]
    settings = part("configs", lambda: client.topics_configs(sorted(snapshot.topics)[:SETTINGS_MAX]))
    silent: set[int] = set()
    starts = part("offsets", lambda: read_ends(client, partitions, snapshot, silent, EARLIEST))
    ends = part("offsets", lambda: read_ends(client, partitions, snapshot, silent))
    idle = None
    if starts is not None and ends is not None:
        written = {tp for tp, end in ends.items() if tp in starts and end > starts[tp]}
        idle = part("times", lambda: read_idle(client, snapshot, ends.keys(), written, silent, now_ms))
    searched = [tp for tp, view in snapshot.partitions() if view.leader in snapshot.brokers][:SEARCHED_MAX]
    hanging = part("transactions", lambda: find_hanging(client, searched, now_ms=now_ms, idle_ms=TIMEOUT_MS))
    return Gathered(settings, starts, ends, idle, hanging, problems)


def read_idle(
    client: DescribingClient,
    snapshot: ClusterSnapshot,
    answered: Set[TopicPartition],
    written: Set[TopicPartition],
    silent: set[int],
    now_ms: int,
) -> dict[str, int]:
    """Topics to which nothing was written for IDLE_DAYS[0] or more, with the largest of IDLE_DAYS that holds.

    By the records' own times, as leaders index them (ListOffsets by time). A topic is left out where the leader of one
    of its partitions has not `answered`: it may be written there. So is one without a partition that was `written`: an
    empty topic may be a minute old.
    """
    asked = {
        name: [TopicPartition(name, view.partition) for view in topic.partitions]
        for name, topic in snapshot.topics.items()
        if not topic.internal
    }
    asked = {
        name: tps
        for name, tps in asked.items()
        if all(tp in answered for tp in tps) and any(tp in written for tp in tps)
    }
    found: dict[str, int] = {}
    for days in IDLE_DAYS:
        wanted = [tp for tps in asked.values() for tp in tps]
        since = read_ends(client, wanted, snapshot, silent, now_ms - days * DAY_MS)
        # -1: no record is as late as that. A partition that did not answer may have one.
        asked = {name: tps for name, tps in asked.items() if all(since.get(tp, 0) < 0 for tp in tps)}
        found |= dict.fromkeys(asked, days)
        if not asked:
            break
    return found

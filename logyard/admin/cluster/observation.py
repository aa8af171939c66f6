"""An observation of a cluster, for tasks that wait: the snapshot, and the offsets that they need. Values only.

The requests of several tasks are joined (`Wanted.of`), so that one observation serves all of them: one Metadata
request, one OffsetFetch for each group and one round of ListOffsets, however many wait.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from logyard.admin.cluster.presence import settled, with_brokers
from logyard.admin.cluster.snapshot import ClusterSnapshot
from logyard.admin.ports import EARLIEST, LATEST, ClusterUnreachable, DescribingClient
from logyard.admin.transactions.hanging import find_hanging
from logyard.admin.transactions.transactions import OpenTransaction
from logyard.broker.errors import ApiError
from logyard.broker.model import TopicPartition

EVERY_TOPIC = "*"  # no topic's name


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an observation contains beside the snapshot: offsets of groups, end offsets of topics, hanging transactions.

    `starts`: topics of which the first offsets are wanted too. EVERY_TOPIC: those that the groups have committed for.
    `ready`: topics of which the witnesses are asked too, once the snapshot has a leader for each partition. A broker
    that is behind has them of an earlier topic of the name, or lacks new partitions; the offsets are those of the
    partitions that the witnesses know. EVERY_TOPIC: all, once the snapshot has full ISRs.
    `partitions`: those that the snapshot lacks are looked up at the witnesses (presence.py).
    `brokers`: the same of brokers.
    `up`: brokers of which the witnesses are asked, once the snapshot has one: that a broker lives is not told by one
    that may not have heard of its end.
    `controller`: who the controller is, as it says itself, once the snapshot names a live one.
    `hanging`: topics (or EVERY_TOPIC), each with the minutes for which nothing was written in a hanging transaction.
    """

    groups: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()
    hanging: frozenset[tuple[str, int]] = frozenset()
    partitions: frozenset[TopicPartition] = frozenset()
    ready: frozenset[str] = frozenset()
    brokers: frozenset[int] = frozenset()
    starts: frozenset[str] = frozenset()
    controller: bool = False
    up: frozenset[int] = frozenset()

    @classmethod
    def of(cls, several: Iterable["Wanted"]) -> "Wanted":
        """The union of what several tasks want."""
        groups: set[str] = set()
        topics: set[str] = set()
        hanging: set[tuple[str, int]] = set()
        partitions: set[TopicPartition] = set()
        ready: set[str] = set()
        brokers: set[int] = set()
        starts: set[str] = set()
        controller = False
        up: set[int] = set()
        for wants in several:
            groups |= wants.groups
            topics |= wants.topics
            hanging |= wants.hanging
            partitions |= wants.partitions
            ready |= wants.ready
            brokers |= wants.brokers
            starts |= wants.starts
            controller |= wants.controller
            up |= wants.up
        return cls(
            frozenset(groups),
            frozenset(topics),
            frozenset(hanging),
            frozenset(partitions),
            frozenset(ready),
            frozenset(brokers),
            frozenset(starts),
            controller,
            frozenset(up),
        )


@dataclass(frozen=True, slots=True)
class Observation:
    """What was observed at one moment.

    `committed`: group → partition → committed offset; a group that did not answer is missing and named in `problems`.
    `ends`: the end offsets of the wanted topics' partitions, and of those that the groups committed for, but for those
    of leaders that did not answer.
    `starts`: the first offsets of the partitions of `Wanted.starts` of which a wanted group has not committed the end,
    but for those of leaders that did not answer.
    `hanging`: transactions that no coordinator will end; None where they were not wanted, or could not be read:
    `hanging_problem` says why. `witnessed`: the topics of `Wanted.ready` as the witnesses know them; None where they
    were not asked, or cannot tell now. `whole`: the same of EVERY_TOPIC. `away`: the brokers of `Wanted.brokers` that
    the witnesses do not know either. `controller`: the broker that says so itself, and no other says otherwise; None
    where it was not asked, or there is none now. `registered`: the brokers that the witnesses know; None where they
    were not asked (`Wanted.up`), or cannot tell now.
    """

    snapshot: ClusterSnapshot
    committed: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)
    hanging: Sequence[OpenTransaction] | None = None
    hanging_problem: str = ""
    witnessed: ClusterSnapshot | None = None
    whole: ClusterSnapshot | None = None
    away: frozenset[int] = frozenset()
    controller: int | None = None
    registered: frozenset[int] | None = None

    def listed(self, topic: str) -> list[TopicPartition] | None:
        """The partitions of a topic of `Wanted.ready`; None while the witnesses do not tell, or know no such topic."""
        if self.witnessed is None or topic not in self.witnessed.topics:
            return None
        return [tp for tp, _ in self.witnessed.partitions([topic])]

    def lag(self, group: str, topics: Iterable[str] = ()) -> dict[TopicPartition, int] | None:
        """Records that the group has left to read, by partition of those topics (of all it committed for).

        What retention has deleted cannot be read: a commit before the first offset counts from there, and so does a
        partition of a named topic without a commit. Needs these topics in `Wanted.starts`, and in `Wanted.ready`:
        which partitions a named topic has, one broker's list does not tell.
        None if it is unknown now: the group, the witnesses or a partition's leader did not answer.
        """
        if group not in self.committed:
            return None
        named = set(topics)
        committed = self.committed[group]
        partitions = {tp for tp in committed if not named or tp.topic in named}
        for topic in named:
            listed = self.listed(topic)
            if listed is None:
                return None
            partitions |= set(listed)
        if not all(tp in self.ends for tp in partitions):
            return None
        behind = {tp for tp in partitions if committed.get(tp, 0) < self.ends[tp]}
        if not behind <= self.starts.keys():
            return None
        left = {tp: self.ends[tp] - max(committed.get(tp, 0), self.starts[tp]) for tp in behind}
        return {tp: max(left.get(tp, 0), 0) for tp in sorted(partitions)}

    def beyond(self, group: str, topics: Iterable[str] = ()) -> dict[TopicPartition, int]:
        """By how many records commits of the group are beyond the ends of their logs, in those topics (all it committed
        for): records were lost, or the topic was made anew. The ends were read after the commits."""
        named = set(topics)
        committed = sorted(self.committed.get(group, {}).items())
        found = {tp: offset - self.ends[tp] for tp, offset in committed if tp in self.ends}
        return {tp: records for tp, records in found.items() if records > 0 and (not named or tp.topic in named)}


def observe(client: DescribingClient, wants: Wanted | None = None) -> Observation:
    """Observe the cluster once. Raises ClusterUnreachable, ApiError if Metadata is not answered."""
    snapshot = client.snapshot(reassignments=True)
    if wants is None or wants == Wanted():
        return Observation(snapshot)
    with suppress(ApiError, ClusterUnreachable):  # nobody can tell now: they are in neither of `topics` and `missing`
        snapshot = settled(client, snapshot, wants.partitions)
    away: frozenset[int] = frozenset()
    with suppress(ApiError, ClusterUnreachable):
        snapshot = with_brokers(client, snapshot, wants.brokers)
        away = wants.brokers - snapshot.brokers.keys()
    committed: dict[str, Mapping[TopicPartition, int]] = {}
    problems: dict[str, str] = {}
    for group in sorted(wants.groups):
        try:
            committed[group] = client.group_offsets(group)
        except (ApiError, ClusterUnreachable) as problem:
            problems[group] = str(problem)
    whole = _whole(client, snapshot) if EVERY_TOPIC in wants.ready else None
    witnessed = whole or _witnessed(client, wants.ready - {EVERY_TOPIC}, snapshot)
    known = snapshot if witnessed is None else replace(snapshot, topics={**snapshot.topics, **witnessed.topics})
    partitions = {tp for tp, _ in known.partitions(sorted(wants.topics))}
    partitions |= {tp for offsets in committed.values() for tp in offsets}
    ends = _offsets(client, known, partitions, LATEST, problems)
    every = EVERY_TOPIC in wants.starts
    behind = {
        tp
        for tp, end in ends.items()
        if (every or tp.topic in wants.starts) and any(c.get(tp, 0) < end for c in committed.values())
    }
    starts = _offsets(client, known, behind, EARLIEST, problems)
    seen = Observation(
        snapshot,
        committed,
        ends,
        starts,
        problems,
        witnessed=witnessed,
        whole=whole,
        away=away,
        controller=_controller(client, snapshot) if wants.controller else None,
        registered=_registered(client) if wants.up & snapshot.brokers.keys() else None,
    )
    if not wants.hanging:
        return seen
    try:
        return replace(seen, hanging=_hanging(client, wants.hanging, snapshot))
    except (ApiError, ClusterUnreachable) as problem:
        return replace(seen, hanging_problem=str(problem))


def _offsets(
    client: DescribingClient,
    snapshot: ClusterSnapshot,
    partitions: Collection[TopicPartition],
    timestamp: int,
    problems: dict[str, str],
) -> Mapping[TopicPartition, int]:
    """Offsets as the leaders tell them; without those of partitions that have none, and of leaders that do not
    answer."""
    views = {tp: snapshot.partition(tp) for tp in sorted(partitions)}
    leaders = {tp: view.leader for tp, view in views.items() if view is not None and view.is_led}
    if not leaders:
        return {}
    try:
        told = client.told_offsets(leaders, timestamp)
    except (ApiError, ClusterUnreachable) as problem:
        problems[""] = str(problem)
        return {}
    if told.untold:
        problems[""] = next(iter(told.untold.values()))
    return told.offsets


def _controller(client: DescribingClient, snapshot: ClusterSnapshot) -> int | None:
    if snapshot.controller not in snapshot.brokers:
        return None
    with suppress(ApiError, ClusterUnreachable):
        told = client.witnessed([])
        return told.controller if told.controller in told.brokers else None
    return None


def _registered(client: DescribingClient) -> frozenset[int] | None:
    with suppress(ApiError, ClusterUnreachable):
        return frozenset(client.witnessed([]).brokers)
    return None


def _whole(client: DescribingClient, snapshot: ClusterSnapshot) -> ClusterSnapshot | None:
    return None if snapshot.unled() or snapshot.under_replicated() else _asked(client, None, snapshot)


def _witnessed(client: DescribingClient, topics: Collection[str], snapshot: ClusterSnapshot) -> ClusterSnapshot | None:
    led = [topic for topic in sorted(topics) if snapshot.ready(topic)]
    return _asked(client, led, snapshot) if led else None


def _asked(client: DescribingClient, topics: Sequence[str] | None, snapshot: ClusterSnapshot) -> ClusterSnapshot | None:
    with suppress(ApiError, ClusterUnreachable):
        # Replicas that are being added lack nothing.
        return replace(client.witnessed(topics), reassignments=snapshot.reassignments)
    return None


def _hanging(
    client: DescribingClient, wanted: Collection[tuple[str, int]], snapshot: ClusterSnapshot
) -> list[OpenTransaction]:
    named = {topic for topic, _ in wanted}
    # That nothing hangs is not said by the list of one broker, which may lack a topic, or new partitions of one.
    topics = None if EVERY_TOPIC in named else sorted(named & snapshot.topics.keys())
    searched = [] if topics == [] else [tp for tp, _ in client.witnessed(topics).partitions()]
    idle_ms = min(minutes for _, minutes in wanted) * 60_000
    return find_hanging(client, searched, now_ms=snapshot.taken_at_ms, idle_ms=idle_ms)

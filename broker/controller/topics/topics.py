"""Topics by their znodes: new and deleted ones, added partitions, topic ids, rewriting.

Rule 1: however a topic znode was created (CreateTopics, a tool, by hand), the watch handles it in one way: it gets an
id if it has none, replicas and partitions become New, partitions Online, replicas Online.
Rule 2: invalid content of one znode is logged and affects only that topic, which counts as having no (more) partitions.
Rule 3: in a changed topic znode, added partitions count, and moves (adding or removing replicas) that start from the
current replicas; other changed replica lists are ignored (facts §3).
Rule 4: a topic znode is rewritten on the version that was read, so that partitions written by others meanwhile stay,
and always with its topic id; an id that was removed or changed is restored.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from logyard.broker.controller import effects, fencing
from logyard.broker.controller.context import ControllerContext, Partition, PartitionPhase, ReplicaPhase, Topic
from logyard.broker.controller.effects import Steps
from logyard.broker.controller.events import PartitionsChanged, TopicsChanged
from logyard.broker.controller.partitions import partition_machine, replica_machine
from logyard.broker.controller.topics import placement
from logyard.broker.errors import ApiError, CorruptData
from logyard.broker.model import Assignment, TopicAssignment, TopicPartition
from logyard.broker.portions import cut
from logyard.broker.znodes import topics as znode
from logyard.broker.znodes.ops import OpResult, SetData, ZkCode, Znode

NAME_LENGTH_MAX = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_REWRITE_ROUNDS_MAX = 10
# A topic's znode takes as long to read as so many partitions in it.
READ_COST = 5


def name_problem(name: str) -> str | None:
    """Return why a topic name is invalid (facts §14), or None."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return "'.' or '..' is not allowed"
    if len(name) > NAME_LENGTH_MAX:
        return f"the length of {name!r} is longer than the max allowed length {NAME_LENGTH_MAX}"
    if not _LEGAL_NAME.fullmatch(name):
        return f"{name!r} contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


# Loading


def load(context: ControllerContext, names: Sequence[str]) -> Steps[list[Topic]]:
    """Read and watch topic znodes into the context, give ids to those without; return the topics known now."""
    loaded: list[Topic] = []
    for start in range(0, len(names), effects.READ_PER_TURN):
        portion = names[start : start + effects.READ_PER_TURN]
        loaded += yield from _load_some(context, portion)
    yield from _give_ids(context, [topic for topic in loaded if topic.topic_id is None])
    return loaded


def _load_some(context: ControllerContext, names: Sequence[str]) -> Steps[list[Topic]]:
    znodes = yield from effects.watch_data([(znode.topic_path(name), PartitionsChanged(name)) for name in names])
    loaded: list[Topic] = []
    added = 0
    for name, found in zip(names, znodes, strict=True):
        if found is None:
            continue
        topic = Topic(name, version=found.version, czxid=found.czxid)
        context.topics[name] = topic
        content = yield from _read(topic, found)
        if content is not None:
            context.set_topic_id(topic, content.topic_id)
            loaded.append(topic)
        added += READ_COST + len(topic.partitions)
        if added >= effects.DONE_PER_TURN:
            added = 0
            yield [effects.Turn()]
    return loaded


def _read(topic: Topic, found: Znode) -> Steps[TopicAssignment | None]:
    """Read a topic znode into `topic`; partitions that are new to memory are added."""
    problem = name_problem(topic.name)
    content: TopicAssignment | None = None
    if problem is None:
        try:
            content = znode.decode(found.data, znode.topic_path(topic.name))
        except CorruptData as corrupt:
            problem = str(corrupt)
    if content is None:
        yield from effects.note("a topic znode cannot be used", level="error", topic=topic.name, reason=problem)
        return None
    for number, assignment in content.partitions.items():
        if number in topic.partitions:
            continue
        problem = _replicas_problem(assignment.replicas)
        if problem is not None:
            topic.unusable[number] = assignment
            yield from effects.note(
                "a partition's assignment cannot be used",
                level="error",
                partition=f"{topic.name}-{number}",
                reason=problem,
            )
            continue
        topic.unusable.pop(number, None)
        topic.partitions[number] = Partition(TopicPartition(topic.name, number), assignment)
    return content


@lru_cache(4096)
def _replicas_problem(replicas: tuple[int, ...]) -> str | None:
    """Why the list cannot be used, None if it can; many partitions have the same."""
    try:
        placement.check_replicas(replicas)
    except ApiError as refused:
        return str(refused)
    return None


def _give_ids(context: ControllerContext, bare: Sequence[Topic]) -> Steps[None]:
    if not context.settings.level.topic_ids or not bare:
        return
    ids = yield from effects.new_topic_ids(len(bare))
    for topic, topic_id in zip(bare, ids, strict=True):
        context.set_topic_id(topic, topic_id)
    failures = yield from rewrite(context, {topic.name: {} for topic in bare}, ids_are_fresh=True)
    for name in failures:
        context.set_topic_id(context.topics[name], None)
    if failures:
        yield from effects.note("topics got no id", level="error", reasons=failures)


# Rewriting


def rewrite(
    context: ControllerContext, changes: Mapping[str, Mapping[int, Assignment]], *, ids_are_fresh: bool = False
) -> Steps[dict[str, str]]:
    """Write topic znodes as they are in memory plus `changes`; return why some were not written.

    The caller applies `changes` to memory after the write. `ids_are_fresh`: no broker has been sent the topics' ids
    yet, so an id found in a znode meanwhile is used instead.
    """
    failures: dict[str, str] = {}
    names = list(changes)
    merged: dict[str, TopicAssignment] = {}
    for _ in range(_REWRITE_ROUNDS_MAX):
        ours: dict[str, TopicAssignment] = {}  # of those whose znode was newer
        # Others have their turns while the znodes of a portion are written.
        for portion in cut(names, lambda n: READ_COST + len(context.topics[n].partitions), effects.READ_PER_TURN):
            contents = {name: merged.get(name) or _changed(context.topics[name], changes[name]) for name in portion}
            writes = [
                (znode.topic_path(n), znode.encode(made), context.topics[n].version) for n, made in contents.items()
            ]
            results = yield from fencing.write(context, [[SetData(*write)] for write in writes])
            stale = _after_write(context, portion, [r[0] for r in results], failures)
            ours |= {name: contents[name] for name in stale}
        if not ours:
            return failures
        merged = yield from _merge_newer(context, ours, failures, ids_are_fresh=ids_are_fresh)
        names = list(merged)
    return failures | dict.fromkeys(merged, "its znode changed under every attempt")


def _changed(topic: Topic, change: Mapping[int, Assignment]) -> TopicAssignment:
    """Return a topic as it is in memory, with these partitions changed."""
    return TopicAssignment({**topic.znode().partitions, **change}, topic.topic_id)


def _after_write(
    context: ControllerContext, names: Sequence[str], results: Sequence[OpResult], failures: dict[str, str]
) -> list[str]:
    """Store results; return topics whose znode was newer than memory."""
    stale: list[str] = []
    for name, result in zip(names, results, strict=True):
        if result.ok:
            context.topics[name].version = result.version
        elif result.code is ZkCode.BAD_VERSION:
            stale.append(name)
        else:
            failures[name] = f"{znode.topic_path(name)}: {result.code.value}"
    return stale


def _merge_newer(
    context: ControllerContext,
    contents: Mapping[str, TopicAssignment],
    failures: dict[str, str],
    *,
    ids_are_fresh: bool,
) -> Steps[dict[str, TopicAssignment]]:
    """Read changed znodes again, and keep what others added to them."""
    names = list(contents)
    znodes = yield from effects.read([znode.topic_path(name) for name in names])
    merged: dict[str, TopicAssignment] = {}
    for name, found in zip(names, znodes, strict=True):
        if found is None:
            failures[name] = f"{znode.topic_path(name)} does not exist any more"
            continue
        try:
            theirs = znode.decode(found.data, znode.topic_path(name))
        except CorruptData as problem:
            failures[name] = str(problem)
            continue
        ours = contents[name]
        context.topics[name].version = found.version
        topic_id = ours.topic_id or theirs.topic_id
        if theirs.topic_id is not None and ids_are_fresh:
            topic_id = theirs.topic_id
        merged[name] = TopicAssignment({**theirs.partitions, **ours.partitions}, topic_id)
        context.set_topic_id(context.topics[name], topic_id)
    return merged


# New partitions


def bring_up(context: ControllerContext, new: Sequence[Partition]) -> Steps[None]:
    """Take partitions that are new to memory from nothing to Online."""
    if not new:
        return
    everywhere = [(p, broker) for p in new for broker in p.assignment.replicas]
    yield from partition_machine.change(context, new, PartitionPhase.NEW)
    yield from replica_machine.change(context, everywhere, ReplicaPhase.NEW)
    yield from partition_machine.change(context, new, PartitionPhase.ONLINE)
    yield from replica_machine.change(context, everywhere, ReplicaPhase.ONLINE)


# Events


def on_topics_changed(context: ControllerContext) -> Steps[tuple[list[str], list[TopicPartition]]]:
    """Handle the children of /brokers/topics.

    Returns deleted topics that were queued for deletion, and partitions of new topics that were written as moving.
    """
    names = yield from effects.watch_children(znode.PATH, TopicsChanged())
    found = dict.fromkeys(names or [])
    vanished = [name for name in context.topics if name not in found]
    queued = [name for name in vanished if context.is_deleting(name)]
    yield from effects.spread(cost for name in vanished for cost in context.forgetting(name))
    context.deleting.update(dict.fromkeys(queued))
    new = [name for name in found if name not in context.topics]
    if vanished or new:
        yield from effects.note("topics changed", new=new, vanished=vanished)
    return queued, (yield from _begin(context, new))


def _begin(context: ControllerContext, names: Sequence[str]) -> Steps[list[TopicPartition]]:
    """Add unknown topics; return those of their partitions that were written as moving."""
    loaded = yield from load(context, names)
    partitions_of_all = [p for topic in loaded for p in topic.partitions.values()]
    yield from bring_up(context, partitions_of_all)
    return [p.tp for p in partitions_of_all if p.assignment.is_reassigning]


def on_partitions_changed(context: ControllerContext, name: str) -> Steps[dict[TopicPartition, tuple[int, ...]]]:
    """Handle a changed topic znode: partitions are added; a topic that was created again under its name starts over.

    Returns the moves that another tool has written into it: partition → target replicas.
    """
    if name not in context.topics:
        return {}
    found = (yield from effects.watch_data([(znode.topic_path(name), PartitionsChanged(name))]))[0]
    topic = context.topics[name]
    if found is None:
        return {}  # the children of /brokers/topics changed too, and that event does the rest
    if found.czxid != topic.czxid:
        yield from effects.spread(context.forgetting(name))
        moving = yield from _begin(context, [name])
        return {tp: context.topics[name].partitions[tp.partition].assignment.target for tp in moving}
    topic.version = found.version
    known = set(topic.partitions)
    content = yield from _read(topic, found)
    if content is None:
        return {}
    new = [partition for number, partition in topic.partitions.items() if number not in known]
    if new and context.is_deleting(name):
        for partition in new:
            del topic.partitions[partition.tp.partition]
        yield from _undo_added_partitions(context, topic)
        return {}
    if new:
        yield from effects.note("partitions were added", partitions=[str(p.tp) for p in new])
    yield from _keep_id(context, topic, content)
    yield from bring_up(context, new)
    moving = [p.tp for p in new if p.assignment.is_reassigning]
    return {tp: content.partitions[tp.partition].target for tp in moving} | _moves_by_others(context, topic, content)


def _keep_id(context: ControllerContext, topic: Topic, content: TopicAssignment) -> Steps[None]:
    """Use the znode's id for a topic without one, or give it one; restore a known id that is missing in the znode."""
    if topic.topic_id is None:
        context.set_topic_id(topic, content.topic_id)
        yield from _give_ids(context, [topic] if topic.topic_id is None else [])
    elif content.topic_id != topic.topic_id:
        # A tool from before 2.8 wrote the znode; with another id brokers would refuse the topic for good (facts §22).
        yield from effects.note("a topic's id is restored", level="warning", topic=topic.name)
        failures = yield from rewrite(context, {topic.name: _written_moves(topic, content)})
        if failures:
            yield from effects.note("a topic's id could not be restored", level="error", reasons=failures)


def _written_moves(topic: Topic, content: TopicAssignment) -> dict[int, Assignment]:
    return {n: a for n, a in content.partitions.items() if n in topic.partitions and _is_move(topic.partitions[n], a)}


def _moves_by_others(
    context: ControllerContext, topic: Topic, content: TopicAssignment
) -> dict[TopicPartition, tuple[int, ...]]:
    if context.is_deleting(topic.name):
        return {}
    return {TopicPartition(topic.name, n): a.target for n, a in _written_moves(topic, content).items()}


def _is_move(partition: Partition, written: Assignment) -> bool:
    """Whether another tool wrote a move that starts from the current replicas (otherwise the znode is outdated)."""
    now = partition.assignment
    return written.is_reassigning and written != now and set(written.origin) == set(now.origin)


def _undo_added_partitions(context: ControllerContext, topic: Topic) -> Steps[None]:
    """A topic that is being deleted does not grow: remove the added partitions from its znode."""
    yield from effects.note("partitions were added to a topic that is being deleted", level="warning", topic=topic.name)
    op = SetData(znode.topic_path(topic.name), znode.encode(topic.znode()), topic.version)
    result = yield from fencing.write_one(context, op)
    if result.ok:
        topic.version = result.version

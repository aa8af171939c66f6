"""Checks of topics, their replicas, states and moves, by the rules of `checks.py`. Pure."""

from collections.abc import Iterable, Iterator

from logyard.admin.zookeeper.findings import NOTE, PATIENCE_S, ZnodeFinding
from logyard.admin.zookeeper.survey import Survey
from logyard.broker.model import Assignment, TopicPartition, topic_id_text
from logyard.broker.znodes import configs, partition_state, reassignments, topics
from logyard.broker.znodes.ops import Check, Create, Delete, SetData, ZkOp


def half_made(found: Survey, now_ms: int) -> Iterator[ZnodeFinding]:
    for name, topic in found.topics.items():
        path = topics.topic_path(name)
        if name in found.deleting:
            continue
        if not topic.partitions:
            yield ZnodeFinding(
                path, "no-partitions", "it names no partition", "the topic cannot be used", "delete the topic"
            )
        lacking = [p for p in topic.partitions if not _has_state(found, TopicPartition(name, p))]
        if lacking and found.age_s(path, now_ms) >= PATIENCE_S:
            dead = [p for p in lacking if not set(topic.partitions[p].replicas) & set(found.brokers)]
            why = f"; none of the replicas' brokers {_ids(dead)} is registered" if dead else ""
            yield ZnodeFinding(
                path,
                "half-made",
                f"partitions {_ids(lacking)} have no state{why}",
                "they have no leader: nobody can write or read them",
                "start a broker that has replicas of them"
                if dead
                else "another controller finishes it: run the `recover_controller` operator, which has one elected",
            )
        if configs.topic_path(name) not in found.znodes:
            yield ZnodeFinding(
                configs.topic_path(name),
                "no-config",
                f"topic {name} has no znode of settings",
                "none: the topic has the defaults; tools that change settings create the znode",
                "create it without settings",
                (Check(path, found.version(path)), Create(configs.topic_path(name), configs.encode({}))),
                NOTE,
            )


def topic_ids(found: Survey, now_ms: int) -> Iterator[ZnodeFinding]:
    owners: dict[str, list[str]] = {}
    some_have_one = any(topic.topic_id is not None for topic in found.topics.values())
    for name, topic in found.topics.items():
        if topic.topic_id is not None:
            owners.setdefault(topic_id_text(topic.topic_id), []).append(name)
        elif some_have_one:
            yield ZnodeFinding(
                topics.topic_path(name),
                "no-topic-id",
                "it has no topic_id, while other topics have one: an older tool has rewritten it",
                "brokers that remember the id refuse the topic (INCONSISTENT_TOPIC_ID) once another one is given",
                "write back the id that the brokers' partition.metadata files have, before the next controller "
                "gives it a new one",
            )
    for topic_id, names in owners.items():
        for name in names if len(names) > 1 else ():
            yield ZnodeFinding(
                topics.topic_path(name),
                "same-topic-id",
                f"id {topic_id} belongs to {', '.join(names)}",
                "requests by id reach the wrong topic",
                "keep the id for the topic whose partition.metadata files have it, remove it from the others",
            )


def replicas(found: Survey, now_ms: int) -> Iterator[ZnodeFinding]:
    for name, topic in found.topics.items():
        for number, placed in topic.partitions.items():
            wrong = _placement_problem(placed)
            if wrong is not None:
                yield ZnodeFinding(
                    topics.topic_path(name),
                    f"bad-replicas-{number}",
                    f"partition {number}: {wrong}",
                    "elections and reassignments of it fail, or have unintended results",
                    "reassign the partition to the replicas that it should have",
                )


def _placement_problem(placed: Assignment) -> str | None:
    if not placed.replicas:
        return "no replicas"
    if len(set(placed.replicas)) < len(placed.replicas):
        return f"a broker occurs twice in replicas {_ids(placed.replicas)}"
    stray = (set(placed.adding) | set(placed.removing)) - set(placed.replicas)
    return f"brokers {_ids(stray)} are in adding or removing replicas but not in replicas" if stray else None


def states(found: Survey, now_ms: int) -> Iterator[ZnodeFinding]:
    for tp, state in found.states.items():
        path, placed = partition_state.path(tp), found.topics[tp.topic].partitions[tp.partition]
        if tp.topic in found.deleting:
            continue
        if state.leader >= 0 and state.leader not in placed.replicas:
            yield _state(path, "foreign-leader", f"leader {state.leader} has no replica ({_ids(placed.replicas)})")
        stray = set(state.isr) - set(placed.replicas)
        if stray:
            yield _state(path, "foreign-isr", f"ISR members {_ids(stray)} have no replica ({_ids(placed.replicas)})")
        if not state.isr:
            yield _state(
                path, "empty-isr", "the ISR is empty", "no clean election is possible: the partition stays offline"
            )
        elif state.leader >= 0 and state.leader not in state.isr:
            yield _state(path, "leader-not-in-isr", f"leader {state.leader} is not in the ISR {_ids(state.isr)}")
        if found.age_s(path, now_ms) >= PATIENCE_S or state.leader >= 0:
            yield from _leadership(found, tp, path)


def _leadership(found: Survey, tp: TopicPartition, path: str) -> Iterator[ZnodeFinding]:
    state = found.states[tp]
    if state.leader in found.brokers:
        return
    living = [broker for broker in state.isr if broker in found.brokers]
    who = f"leader {state.leader} is not registered" if state.leader >= 0 else "it has no leader"
    if living:
        yield ZnodeFinding(
            path,
            "not-elected",
            f"{who}, though brokers {_ids(living)} of the ISR live",
            "the partition cannot be written or read",
            "the controller has missed it: run the `recover_controller` operator, which has another one elected",
        )
    else:
        yield ZnodeFinding(
            path,
            "offline",
            f"{who}, and no broker of the ISR {_ids(state.isr)} lives",
            "the partition cannot be written or read until one comes back",
            "start one of these brokers; only if none can be: `logyard leaders elect --election-type unclean`, "
            "which loses what the others had not yet copied",
        )


def _state(path: str, kind: str, wrong: str, causes: str = "") -> ZnodeFinding:
    return ZnodeFinding(
        path,
        kind,
        wrong,
        causes or "clients are sent to a broker that does not serve the partition, or acks=all waits for one",
        "reassign the partition to the replicas that it should have, or have its leader elected",
    )


def orphans(found: Survey, now_ms: int) -> Iterator[ZnodeFinding]:
    for tp in found.orphans:
        if tp.topic not in found.deleting:
            yield ZnodeFinding(
                topics.partition_path(*tp),
                "orphan",
                f"the topic has no partition {tp.partition}",
                "none today; a partition of that number, if it is added later, starts with this state",
                "check whether the topic's znode has lost the partition; if not, delete this one",
            )


def moves(found: Survey, now_ms: int) -> Iterator[ZnodeFinding]:
    yield from _requested_moves(found, now_ms)
    for name, topic in found.topics.items():
        for number, placed in topic.partitions.items():
            dead = [broker for broker in placed.adding if broker not in found.brokers]
            if dead:
                yield ZnodeFinding(
                    topics.topic_path(name),
                    f"stuck-move-{number}",
                    f"partition {number} waits for replicas on {_ids(dead)}, not registered",
                    "the reassignment does not end, and the topic cannot get partitions or be deleted meanwhile",
                    "start these brokers, or `logyard reassign cancel`",
                )


def _requested_moves(found: Survey, now_ms: int) -> Iterator[ZnodeFinding]:
    path, asked = reassignments.PATH, found.reassignments
    if asked is None:
        return
    useless = {tp: None for tp, target in asked.items() if _is_useless(found, tp, target)}
    if useless and found.age_s(path, now_ms) >= PATIENCE_S:
        kept = {tp: target for tp, target in asked.items() if tp not in useless}
        version = found.version(path)
        op: ZkOp = SetData(path, reassignments.encode(kept), version) if kept else Delete(path, version)
        yield ZnodeFinding(
            path,
            "stale-move",
            f"{', '.join(map(str, useless))}: moved already, or no such partition",
            "while the znode exists, tools cannot request another reassignment through ZooKeeper",
            "take these out" if kept else "delete it",
            (op,),
        )
    waiting = {tp: [b for b in asked[tp] if b not in found.brokers] for tp in asked if tp not in useless}
    for tp, dead in waiting.items():
        if dead:
            yield ZnodeFinding(
                path,
                f"stuck-move-{tp}",
                f"{tp} is to go to {_ids(dead)}, not registered",
                "the reassignment waits, and tools cannot request another one through ZooKeeper",
                f"start these brokers, or take {tp} out of the znode and cancel its reassignment",
            )


def _is_useless(found: Survey, tp: TopicPartition, target: tuple[int, ...]) -> bool:
    topic = found.topics.get(tp.topic)
    if topic is None:
        return topics.topic_path(tp.topic) not in found.bad
    placed = topic.partitions.get(tp.partition)
    return placed is None or (placed.replicas == target and not placed.is_reassigning)


def _has_state(found: Survey, tp: TopicPartition) -> bool:
    return tp in found.states or partition_state.path(tp) in found.bad


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, sorted(brokers)))

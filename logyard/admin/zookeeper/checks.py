"""Checks of a cluster's znodes, as rules over one survey of them. Pure.

Rule 1: each finding has a path, what is wrong there, what it causes, and what helps.
Rule 2: a fix is proposed only if it loses nothing: requests that nobody can carry out, notifications that nobody will
        read, znodes that every broker creates at start. Leaders, replicas and settings belong to the controller and
        to the owner.
Rule 3: work that a controller may still do is not a finding before it is `PATIENCE_S` old.
"""

from collections.abc import Callable, Iterable, Iterator

from logyard.admin.zookeeper import topic_checks
from logyard.admin.zookeeper.findings import ERROR, NOTE, PATIENCE_S, ZnodeFinding
from logyard.admin.zookeeper.survey import Survey
from logyard.broker.znodes import (
    brokers,
    config_changes,
    configs,
    controller,
    delete_topics,
    isr_notifications,
    log_dir_events,
    partition_state,
    preferred_election,
    reassignments,
    topics,
)
from logyard.broker.znodes.ops import Create, Delete, SetData, ZkOp

# A topic's settings are written before the topic itself.
CREATION_S = 600.0

_REQUESTS = (reassignments.PATH, preferred_election.PATH)
_NOTES = (config_changes.PATH, isr_notifications.PATH, log_dir_events.PATH)


def check(found: Survey, now_ms: int) -> list[ZnodeFinding]:
    """Return all findings, by path. `now_ms` is wall-clock time."""
    findings = [finding for rule in RULES for finding in rule(found, now_ms)]
    return sorted(findings, key=lambda finding: (finding.severity, finding.path, finding.kind))


def skeleton(found: Survey, now_ms: int) -> Iterator[ZnodeFinding]:
    for path in found.missing:
        yield ZnodeFinding(
            path,
            "missing",
            "there is no such znode, although every broker creates it at start",
            "nothing below it can be stored or watched until a broker starts",
            "create it, empty",
            (Create(path),),
        )


def undecodable(found: Survey, now_ms: int) -> Iterator[ZnodeFinding]:
    for path, problem in found.bad.items():
        parent = path.rpartition("/")[0]
        ops: tuple[ZkOp, ...] = ()
        fix = "write it again; its content cannot be guessed"
        if path in _REQUESTS or parent in _NOTES:
            ops, fix = (Delete(path, found.version(path)),), "delete it: nobody can carry out what it asks for"
        elif path == controller.EPOCH_PATH:
            fix = "`recover_controller` (operators) writes a number above every state's"
        elif parent == brokers.IDS_PATH:
            fix = "restart that broker: it registers again"
        yield ZnodeFinding(path, "undecodable", problem, _harm(path), fix, ops)


def _harm(path: str) -> str:
    if path.startswith(f"{topics.PATH}/"):
        return "the controller ignores it: its partitions keep their state, or get no leader"
    if path in (controller.PATH, controller.EPOCH_PATH):
        return "no broker can tell who is controller, or be elected"
    if path.startswith("/config/") and not path.startswith(f"{config_changes.PATH}/"):
        return "brokers keep the settings that they have, and start without these"
    if path.startswith(f"{brokers.IDS_PATH}/"):
        return "the broker counts as absent and leads no partitions"
    return "it is ignored"


def no_controller(found: Survey, now_ms: int) -> Iterator[ZnodeFinding]:
    if found.brokers and found.controller is None and controller.PATH not in found.bad:
        yield ZnodeFinding(
            controller.PATH,
            "nobody-controls",
            f"brokers {_ids(found.brokers)} are registered, and nobody is controller",
            "no leader is elected, no topic created or deleted, no reassignment continues",
            "run the `recover_controller` operator, which starts an election, or restart one broker",
        )
    elif found.controller is not None and found.brokers and found.controller not in found.brokers:
        yield ZnodeFinding(
            controller.PATH,
            "controller-unknown",
            f"broker {found.controller} holds it and is not registered",
            "unless that broker comes back, there is no working controller until its session ends",
            "the `recover_controller` operator fences it",
        )


def epochs(found: Survey, now_ms: int) -> Iterator[ZnodeFinding]:
    """Find states of a later epoch than /controller_epoch: the counter was lost or set back."""
    if controller.EPOCH_PATH not in found.znodes and found.states:
        highest = controller.believed(state.controller_epoch for state in found.states.values())
        yield ZnodeFinding(
            controller.EPOCH_PATH,
            "no-epoch",
            f"there is no such znode, although partition states have epochs up to {highest}",
            "the controller writes nothing more and has to be elected anew; one of Apache Kafka begins at 1 again, and "
            "the other brokers refuse it",
            f"write {highest}: the next controller's epoch is then above every state's",
            (Create(controller.EPOCH_PATH, controller.encode_epoch(highest)),),
        )
    for tp, state in sorted(found.states.items()):
        if state.controller_epoch > controller.BELIEVED_MAX:
            yield ZnodeFinding(
                partition_state.path(tp),
                "impossible-epoch",
                f"it is of controller epoch {state.controller_epoch}, which no controller can have had",
                "the controller considers itself deposed there: the partition keeps its leader or stays without one",
                "write the state again with the epoch of /controller_epoch, then have a controller elected",
            )
    if found.controller_epoch is None:
        return
    ahead = {
        tp: s.controller_epoch
        for tp, s in found.states.items()
        if found.controller_epoch < s.controller_epoch <= controller.BELIEVED_MAX
    }
    if ahead:
        highest = max(ahead.values())
        some = ", ".join(map(str, sorted(ahead)[:5])) + (", …" if len(ahead) > 5 else "")
        ops: list[ZkOp] = [
            SetData(controller.EPOCH_PATH, controller.encode_epoch(highest), found.version(controller.EPOCH_PATH))
        ]
        if controller.PATH in found.znodes:
            ops.append(Delete(controller.PATH, found.version(controller.PATH)))
        yield ZnodeFinding(
            controller.EPOCH_PATH,
            "epoch-behind",
            f"it is {found.controller_epoch}, and {len(ahead)} partitions' states ({some}) are of up to {highest}",
            "the controller considers itself deposed there: these partitions keep their leader or stay without one",
            f"write {highest} and have a controller elected, whose epoch is then above every state's",
            tuple(ops),
        )


def requests(found: Survey, now_ms: int) -> Iterator[ZnodeFinding]:
    path = preferred_election.PATH
    if found.elections is not None and found.age_s(path, now_ms) >= PATIENCE_S:
        yield ZnodeFinding(
            path,
            "stale-election",
            f"asked for {found.age_s(path, now_ms):.0f} s ago, and not done",
            "tools cannot request another election through ZooKeeper",
            "delete it; request it again when a controller works",
            (Delete(path, found.version(path)),),
        )
    for name in found.deleting:
        yield from _deletion(found, name, now_ms)


def _deletion(found: Survey, name: str, now_ms: int) -> Iterator[ZnodeFinding]:
    path = delete_topics.path(name)
    if path not in found.znodes or found.age_s(path, now_ms) < PATIENCE_S:
        return
    age = f"{found.age_s(path, now_ms):.0f} s ago"
    if name not in found.topic_names:
        yield ZnodeFinding(
            path,
            "deletion-of-nothing",
            f"asked for {age}, and there is no such topic",
            "a topic that is created with this name is deleted at once",
            "delete the request",
            (Delete(path, found.version(path)),),
        )
        return
    topic = found.topics.get(name)
    placed = topic.partitions.values() if topic is not None else ()
    dead = sorted({b for a in placed for b in a.replicas if b not in found.brokers})
    moving = any(a.is_reassigning for a in placed)
    why = f"; brokers {_ids(dead)} with replicas are not registered" if dead else ""
    why += "; it is being reassigned" if moving else ""
    yield ZnodeFinding(
        path,
        "deletion-hangs",
        f"asked for {age}, and the topic is still there{why}",
        "the topic cannot be used, and no topic of this name can be created",
        f"start brokers {_ids(dead)}: then the deletion continues"
        if dead
        else "wait for, or cancel, its reassignment"
        if moving
        else "check that a controller works and that delete.topic.enable is true",
    )


def settings(found: Survey, now_ms: int) -> Iterator[ZnodeFinding]:
    for name in found.config_names:
        path = configs.topic_path(name)
        if name in found.topic_names or path not in found.znodes or name in found.deleting:
            continue
        if found.age_s(path, now_ms) >= CREATION_S:
            version = found.version(path)
            is_empty = path not in found.bad and not configs.decode(found.znodes[path].data)
            yield ZnodeFinding(
                path,
                "config-of-nothing",
                "there is no such topic: a creation or deletion stopped half-way",
                "none" if is_empty else "a topic that an old tool creates with this name may get these settings",
                "delete it",
                (Delete(path, version),),
                NOTE if is_empty else ERROR,
            )


def notifications(found: Survey, now_ms: int) -> Iterator[ZnodeFinding]:
    for name in found.isr_notifications:
        path = isr_notifications.path(name)
        if path in found.znodes and path not in found.bad and found.age_s(path, now_ms) >= PATIENCE_S:
            yield ZnodeFinding(
                path,
                "unread-notification",
                f"written {found.age_s(path, now_ms):.0f} s ago, and read by no controller",
                "clients may get an old ISR; a reassignment may wait for it",
                "delete it, as every new controller does",
                (Delete(path, found.version(path)),),
            )
    for name, broker in found.log_dir_events.items():
        path = log_dir_events.path(name)
        if found.age_s(path, now_ms) >= PATIENCE_S:
            gone = broker not in found.brokers
            yield ZnodeFinding(
                path,
                "unread-dir-failure",
                f"broker {broker} lost a directory {found.age_s(path, now_ms):.0f} s ago, unread by any controller",
                "none: that broker is gone" if gone else "partitions in that directory may still be led there",
                "delete it" if gone else "restart that broker, or have another controller elected",
                (Delete(path, found.version(path)),) if gone else (),
            )


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, sorted(brokers)))


RULES: tuple[Callable[[Survey, int], Iterator[ZnodeFinding]], ...] = (
    skeleton,
    undecodable,
    no_controller,
    epochs,
    topic_checks.half_made,
    topic_checks.topic_ids,
    topic_checks.replicas,
    topic_checks.states,
    topic_checks.orphans,
    topic_checks.moves,
    requests,
    settings,
    notifications,
)

"""CreateTopics and CreatePartitions: all checks in Kafka's order, then the znodes that trigger the rest.

Rule 1: the checks and their error codes are those of facts §14, in Kafka 3.9's order; each topic is checked
independently.
Rule 2: validate_only does everything except the writes.
Rule 3: config and topic znode are written in one transaction; if the topic exists by then, TOPIC_ALREADY_EXISTS.
Rule 4: everything else follows from the watch on /brokers/topics, as for a topic created by hand.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from logyard.broker.controller import effects, fencing
from logyard.broker.controller.context import ControllerContext, Topic
from logyard.broker.controller.effects import Answer, Steps
from logyard.broker.controller.events import (
    CreatedTopic,
    CreatePartitions,
    CreateTopics,
    NewPartitions,
    NewTopic,
    Outcome,
)
from logyard.broker.controller.policies import TopicRequest
from logyard.broker.controller.topics import placement, topics
from logyard.broker.errors import ApiError, CorruptData, ErrorCode, LogyardError
from logyard.broker.model import ZERO_TOPIC_ID, Assignment, TopicAssignment, TopicId
from logyard.broker.znodes import config_changes, configs
from logyard.broker.znodes import topics as znode
from logyard.broker.znodes.content import check_size
from logyard.broker.znodes.ops import Create, SetData, ZkCode, ZkOp, Znode

# What the checks of a topic take, in parts of a request; and how many topics are written together.
PLAN_PARTS = 10
WRITTEN_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class _Plan:
    """A topic that passed its checks."""

    placement: placement.Placement
    configs: Mapping[str, str]
    topic_id: TopicId | None


# CreateTopics


def on_create_topics(context: ControllerContext, request: CreateTopics) -> Steps[None]:
    """Answer CreateTopics; the partitions have no leaders yet when the answer is sent."""
    given = Counter[str]()
    for number, topic in enumerate(request.topics, 1):
        given[topic.name] += 1
        yield from effects.done(number)
    existing = (yield from effects.children([znode.PATH]))[0] or []
    known = _Names(existing)
    answers: dict[str, CreatedTopic] = {}
    plans: dict[str, _Plan] = {}
    for number, topic in enumerate(request.topics, 1):
        yield from effects.done(number * PLAN_PARTS)
        try:
            if given[topic.name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Topic {topic.name!r} is in the request more than once.")
            plans[topic.name] = yield from _plan(context, topic, known, request)
            known.add(topic.name)
        except ApiError as refused:
            answers[topic.name] = CreatedTopic(topic.name, refused.code, refused.message)
    names = list(plans)
    for start in range(0, 0 if request.validate_only else len(names), WRITTEN_AT_ONCE):
        portion = {name: plans[name] for name in names[start : start + WRITTEN_AT_ONCE]}
        failures = yield from _write(context, portion)
        answers |= {name: CreatedTopic(name, why.code, why.message) for name, why in failures.items()}
    created: list[CreatedTopic] = []
    for number, topic in enumerate(request.topics, 1):
        yield from effects.done(number)
        answer = answers.get(topic.name)
        created.append(_created(topic.name, plans[topic.name]) if answer is None else answer)
    yield from effects.perform(Answer(created))


def _created(name: str, plan: _Plan) -> CreatedTopic:
    return CreatedTopic(
        name,
        num_partitions=len(plan.placement),
        replication_factor=len(plan.placement[0]),
        topic_id=plan.topic_id or ZERO_TOPIC_ID,
        configs=plan.configs,
    )


class _Names:
    """The existing topics, also by their names in metrics, where a dot and an underscore are the same."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = dict.fromkeys(names)
        self._folded: dict[str, str] = {}
        for name in self._names:
            self._folded.setdefault(_folded(name), name)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def add(self, name: str) -> None:
        self._names[name] = None
        self._folded.setdefault(_folded(name), name)

    def colliding(self, name: str) -> str | None:
        """Return the topic that has the same name in metrics as `name`."""
        return self._folded.get(_folded(name))


def _folded(name: str) -> str:
    return name.replace(".", "_")


def _plan(context: ControllerContext, topic: NewTopic, existing: _Names, request: CreateTopics) -> Steps[_Plan]:
    """Check one topic and place its replicas; raises ApiError. The order is Kafka 3.9's
    (ZkAdminManager.createTopics)."""
    _check_existence(context, topic, existing)
    partitions, factor, placed = yield from _placed(context, topic, rack_aware=request.rack_aware)
    _check_name(topic.name, existing)
    if placed is None:
        placed = yield from _collected(placement.manual(topic.assignments))
        placement.check_whole(placed)
    overrides = {key: value for key, value in topic.configs.items() if value is not None}
    context.settings.validate_topic_overrides(overrides)
    check_size("the settings", configs.encode(overrides), ErrorCode.INVALID_CONFIG)
    if context.settings.create_policy is not None:
        manual = placed if topic.assignments else None
        context.settings.create_policy(TopicRequest(topic.name, partitions, factor, manual, overrides))
    topic_id: TopicId | None = None
    if context.settings.level.topic_ids and not request.validate_only:
        topic_id = (yield from effects.new_topic_ids(1))[0]
    return _Plan(placed, overrides, topic_id)


def _check_existence(context: ControllerContext, topic: NewTopic, existing: _Names) -> None:
    """The checks before placement: TOPIC_ALREADY_EXISTS, INVALID_CONFIG (a setting without a value), INVALID_REQUEST
    (counts beside an assignment)."""
    if topic.name in existing:
        being = " and is being deleted" if context.is_deleting(topic.name) else ""
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists{being}.")
    empty = sorted(key for key, value in topic.configs.items() if value is None)
    if empty:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {', '.join(empty)}")
    if topic.assignments and (topic.num_partitions != -1 or topic.replication_factor != -1):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "Both numPartitions or replicationFactor and replicasAssignments were set. Give one or the other.",
        )


def _placed(
    context: ControllerContext, topic: NewTopic, *, rack_aware: bool
) -> Steps[tuple[int | None, int | None, placement.Placement | None]]:
    """Return both counts, with defaults, and the placement; three times None for a placement by hand."""
    if topic.assignments:
        return None, None, None
    settings = context.settings
    partitions = settings.num_partitions if topic.num_partitions == -1 else topic.num_partitions
    factor = settings.default_replication_factor if topic.replication_factor == -1 else topic.replication_factor
    placed = yield from _place(context, partitions, factor, rack_aware=rack_aware)
    return partitions, factor, placed


def _check_name(name: str, existing: _Names) -> None:
    """Check the name and its collisions (INVALID_TOPIC_EXCEPTION)."""
    problem = topics.name_problem(name)
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
    other = existing.colliding(name)
    if other is not None:
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topics: {other}",
        )


def _place(context: ControllerContext, partitions: int, factor: int, *, rack_aware: bool) -> Steps[placement.Placement]:
    live = [(b, context.brokers[b].rack) for b in context.live_ids()]
    if not rack_aware and any(rack is None for _, rack in live):
        live = [(b, None) for b, _ in live]
    bound = max(1, len(live))
    start, shift = yield from effects.draw([bound, bound])
    return (yield from _collected(placement.place(live, partitions, factor, start=start, shift=shift)))


def _collected(partitions: Iterable[placement.Placed]) -> Steps[placement.Placement]:
    """Others have their turns while the partitions of a topic are placed."""
    placed: placement.Placement = {}
    for number, (partition, replicas) in enumerate(partitions, 1):
        placed[partition] = replicas
        yield from effects.done(number)
    return placed


def _write(context: ControllerContext, plans: Mapping[str, _Plan]) -> Steps[dict[str, ApiError]]:
    """Write config and topic znodes; return why some topics were not created."""
    names = list(plans)
    old_configs = yield from effects.read_each([configs.topic_path(name) for name in names])
    units = [_znodes(name, plans[name], old) for name, old in zip(names, old_configs, strict=True)]
    results = yield from fencing.write(context, units)
    codes = {name: fencing.deciding(result).code for name, result in zip(names, results, strict=True)}
    taken = [name for name, code in codes.items() if code is ZkCode.NODE_EXISTS]
    found = yield from effects.read([znode.topic_path(name) for name in taken])
    ours = {name for name, node in zip(taken, found, strict=True) if _is_ours(plans[name], node)}
    failures: dict[str, ApiError] = {}
    for name, code in codes.items():
        if code is ZkCode.OK or name in ours:
            continue
        if code is ZkCode.NODE_EXISTS:
            failures[name] = ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        else:
            failures[name] = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper refused the topic: {code.value}")
    if plans:
        yield from effects.note("topics were created", topics=[name for name in names if name not in failures])
    return failures


def _znodes(name: str, plan: _Plan, old_config: Znode | LogyardError | None) -> list[ZkOp]:
    """An existing config znode belonged to a topic that is gone; it is replaced."""
    path, data = configs.topic_path(name), configs.encode(plan.configs)
    config: ZkOp = Create(path, data) if old_config is None else SetData(path, data)
    content = TopicAssignment({number: Assignment(b) for number, b in plan.placement.items()}, plan.topic_id)
    ops: list[ZkOp] = [config, Create(znode.topic_path(name), znode.encode(content))]
    if plan.configs:
        # Kafka's brokers read the config znode when they create a log; ours are also notified, as of any change.
        ops.append(config_changes.notice(configs.TOPICS, name))
    return ops


def _is_ours(plan: _Plan, found: Znode | None) -> bool:
    """Whether the write succeeded but its reply was lost: the znode has the id that was drawn for it."""
    if found is None or plan.topic_id is None:
        return False
    try:
        return znode.decode(found.data).topic_id == plan.topic_id
    except CorruptData:
        return False


# CreatePartitions


def on_create_partitions(context: ControllerContext, request: CreatePartitions) -> Steps[None]:
    """Answer CreatePartitions; the watch on the topic znode starts the new partitions."""
    given = Counter[str]()
    for number, wanted in enumerate(request.topics, 1):
        given[wanted.topic] += 1
        yield from effects.done(number)
    moving = {tp.topic for tp in context.reassigning}
    outcomes: dict[str, Outcome] = {}
    changes: dict[str, Mapping[int, Assignment]] = {}
    for number, wanted in enumerate(request.topics, 1):
        yield from effects.done(number * PLAN_PARTS)
        try:
            if given[wanted.topic] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Topic {wanted.topic!r} is in the request more than once.")
            changes[wanted.topic] = yield from _added(_grow(context, wanted, moving))
        except ApiError as refused:
            outcomes[wanted.topic] = Outcome(refused.code, refused.message)
    if not request.validate_only and changes:
        failures = yield from topics.rewrite(context, changes)
        outcomes |= {name: Outcome(ErrorCode.UNKNOWN_SERVER_ERROR, why) for name, why in failures.items()}
    for name in changes:
        outcomes.setdefault(name, Outcome())
    yield from effects.perform(Answer(outcomes))


def _added(partitions: Iterable[placement.Placed]) -> Steps[dict[int, Assignment]]:
    """As `_collected`, as what a topic's znode has."""
    added: dict[int, Assignment] = {}
    for number, (partition, replicas) in enumerate(partitions, 1):
        added[partition] = Assignment(replicas)
        yield from effects.done(number)
    return added


def _grow(context: ControllerContext, wanted: NewPartitions, moving: Collection[str]) -> Iterable[placement.Placed]:
    """Check one topic and place its new partitions; raises ApiError."""
    topic = context.topics.get(wanted.topic)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{wanted.topic}' does not exist.")
    if context.is_deleting(wanted.topic):
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"The topic '{wanted.topic}' is being deleted.")
    if wanted.topic in moving:
        raise ApiError(
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
            f"A partition of '{wanted.topic}' is being reassigned: wait for its end.",
        )
    existing = {number: p.assignment.replicas for number, p in sorted(topic.partitions.items())}
    if 0 not in existing:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Topic '{wanted.topic}' has no usable partition 0 to go by.")
    if wanted.count <= len(existing):
        equal, higher = (
            f"Topic already has {len(existing)} partitions.",
            (f"Topic currently has {len(existing)} partitions, which is higher than the requested {wanted.count}."),
        )
        raise ApiError(ErrorCode.INVALID_PARTITIONS, equal if wanted.count == len(existing) else higher)
    if wanted.assignments is not None:
        return _check_added(context, topic, wanted, existing)
    live = [(b, context.brokers[b].rack) for b in context.live_ids()]
    return placement.grow(live, existing, wanted.count)


def _check_added(
    context: ControllerContext, topic: Topic, wanted: NewPartitions, existing: Mapping[int, tuple[int, ...]]
) -> Iterator[placement.Placed]:
    assignments = wanted.assignments or ()
    placement.check_size(wanted.count)
    increment = wanted.count - len(existing)
    if len(assignments) != increment:
        raise _bad_growth(f"{increment} new partitions need {increment} assignments, found {len(assignments)}")
    for partition, brokers in enumerate(assignments, len(existing)):
        placement.check_replicas(brokers)
        unknown = [b for b in brokers if b not in context.brokers]
        if unknown:
            raise _bad_growth(f"unknown brokers {unknown}")
        if len(brokers) != len(existing[0]):
            raise _bad_growth(f"topic '{topic.name}' has replication factor {len(existing[0])}, found {list(brokers)}")
        yield partition, tuple(brokers)


def _bad_growth(why: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Invalid replica assignment: {why}.")

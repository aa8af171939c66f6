"""Relations that must hold between keys: Kafka 3.9's checks, and those that Logyard adds."""

from collections.abc import Callable, Mapping

from logyard.broker.config.key_types import ConfigValue

Values = Mapping[str, ConfigValue]


def _number(values: Values, key: str) -> float:
    value = values[key]
    assert isinstance(value, int | float)
    return value


_NOT_ABOVE = (
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    ("offsets.commit.required.acks", "offsets.topic.replication.factor"),
    ("group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
    ("group.consumer.min.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"),
)


def _order(values: Values) -> list[str]:
    return [
        f"{small} ({values[small]}) may not exceed {large} ({values[large]})"
        for small, large in _NOT_ABOVE
        if _number(values, small) > _number(values, large)
    ]


def _broker_id(values: Values) -> list[str]:
    broker_id, reserved = _number(values, "broker.id"), _number(values, "reserved.broker.max.id")
    if values["broker.id.generation.enable"]:
        if not -1 <= broker_id <= reserved:
            return [f"broker.id: -1 (generated) to reserved.broker.max.id ({reserved}) is expected, not {broker_id}"]
    elif broker_id < 0:
        return [f"broker.id: 0 or more is expected without broker.id.generation.enable, not {broker_id}"]
    return []


def _zookeeper_mode(values: Values) -> list[str]:
    if values["process.roles"]:
        return ["process.roles: Logyard runs with ZooKeeper only; leave it out"]
    return []


def _queue(values: Values) -> list[str]:
    queued = _number(values, "queued.max.request.bytes")
    if 0 < queued < _number(values, "socket.request.max.bytes"):
        return ["queued.max.request.bytes: at least socket.request.max.bytes is expected, or -1 for no bound"]
    return []


def _failed_logins(values: Values) -> list[str]:
    idle_ms = _number(values, "connections.max.idle.ms")
    if idle_ms > 0 and _number(values, "connection.failed.authentication.delay.ms") >= idle_ms:
        return ["connection.failed.authentication.delay.ms: less than connections.max.idle.ms is expected"]
    return []


def _cleaner(values: Values) -> list[str]:
    threads = _number(values, "log.cleaner.threads")
    if threads and _number(values, "log.cleaner.dedupe.buffer.size") / threads <= 1024 * 1024:
        return ["log.cleaner.dedupe.buffer.size: more than 1 MiB for each of log.cleaner.threads is expected"]
    return []


ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"


def _authorizer(values: Values) -> list[str]:
    """The authorizer is Kafka's own for ZooKeeper mode, or none; its super users are principals."""
    named, users = str(values["authorizer.class.name"]), str(values["super.users"] or "")
    problems = []
    if named not in ("", ACL_AUTHORIZER):
        problems.append(f"authorizer.class.name: {ACL_AUTHORIZER} is expected, or nothing, not {named}")
    if not all(":" in user for user in super_users(users)):
        problems.append("super.users: principals separated by semicolons are expected: User:a;User:b")
    return problems


def super_users(text: str) -> list[str]:
    """Return the principals in `super.users`; they are separated by semicolons, as the names of certificates have
    commas."""
    return [user.strip() for user in text.split(";") if user.strip()]


_CHECKS: tuple[Callable[[Values], list[str]], ...] = (
    _order,
    _broker_id,
    _zookeeper_mode,
    _queue,
    _failed_logins,
    _cleaner,
    _authorizer,
)


def relation_problems(values: Values) -> list[str]:
    """Return a line for each relation that does not hold."""
    return [problem for check in _CHECKS for problem in check(values)]

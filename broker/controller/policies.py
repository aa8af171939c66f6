"""An administrator's own rules: a policy for new topics, and one for changed settings.

Both keys (create.topic.policy.class.name, alter.config.policy.class.name) hold the path of a Python class,
`package.module.Class`, importable by the broker. It is created without arguments at start. `configure(settings)`, if it
has one, gets the broker's own settings. `validate(request)` is called for each request, and refuses by raising
`PolicyViolation("why")`: POLICY_VIOLATION with that text, as in Kafka (KIP-108, KIP-133). Any other exception is
UNKNOWN_SERVER_ERROR for that topic or resource, nothing more. A policy runs on the broker's event loop, so it must
decide from its arguments and do no I/O.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from logyard.broker.config.broker import BrokerConfig, ConfigProblems
from logyard.broker.errors import ApiError, ErrorCode

CREATE_TOPIC = "create.topic.policy.class.name"
ALTER_CONFIG = "alter.config.policy.class.name"

T = TypeVar("T")


class PolicyViolation(ApiError):
    """Raised by a policy to refuse; the client gets the text."""

    def __init__(self, why: str) -> None:
        super().__init__(ErrorCode.POLICY_VIOLATION, why)


@dataclass(frozen=True, slots=True)
class TopicRequest:
    """The argument of a create policy: Kafka's CreateTopicPolicy.RequestMetadata.

    Either both counts or the placement is set.
    """

    topic: str
    num_partitions: int | None
    replication_factor: int | None
    placement: Mapping[int, tuple[int, ...]] | None
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ConfigRequest:
    """The argument of an alter-config policy: Kafka's AlterConfigPolicy.RequestMetadata.

    `kind` is `topic` or `broker` (name "": every broker's); `configs` are the request's settings, None for a removal.
    """

    kind: str
    name: str
    configs: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Policies:
    """The loaded policies; None if not configured. Each raises ApiError to refuse."""

    create_topic: Callable[[TopicRequest], None] | None = None
    alter_config: Callable[[ConfigRequest], None] | None = None


NO_POLICIES = Policies()


def load(config: BrokerConfig) -> Policies:
    """Import and create the configured classes. Raises ConfigProblems with one line for each unusable one."""
    problems: list[str] = []
    found: dict[str, Callable[[Any], None] | None] = {}
    for key in (CREATE_TOPIC, ALTER_CONFIG):
        path = config.optional_str(key)
        try:
            found[key] = _guarded(path, _make(path, config)) if path else None
        except Exception as problem:  # whatever the class or its module raises becomes one line
            problems.append(f"{key}: {path}: {_said(problem)}")
    if problems:
        raise ConfigProblems(problems)
    return Policies(found[CREATE_TOPIC], found[ALTER_CONFIG])


def _make(path: str, config: BrokerConfig) -> Callable[[Any], object]:
    module_name, dot, class_name = path.rpartition(".")
    if not dot or not all(part.isidentifier() for part in path.split(".")):
        raise ValueError("a class is expected as package.module.Class")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as missing:
        raise ValueError(f"there is no module {missing.name} on the broker's Python path") from None
    kind = getattr(module, class_name, None)
    if not isinstance(kind, type) or not callable(getattr(kind, "validate", None)):
        raise ValueError(f"{module_name} has no class {class_name} with a method validate(request)")
    policy: Any = kind()
    configure = getattr(policy, "configure", None)
    if callable(configure):
        # Secrets are left out: a policy needs none.
        configure({entry.name: entry.value for entry in config.describe() if not entry.sensitive})
    validate: Callable[[Any], object] = policy.validate
    return validate


def _guarded(path: str, validate: Callable[[T], object]) -> Callable[[T], None]:
    def check(request: T) -> None:
        try:
            validate(request)
        except ApiError:
            raise
        except Exception as bug:  # the policy's own code failed: the error of this one request
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"policy {path} failed: {_said(bug)}") from bug

    return check


def _said(problem: Exception) -> str:
    text = str(problem).partition("\n")[0][:200]
    return text if isinstance(problem, ValueError) and text else f"{type(problem).__name__}: {text}".rstrip(": ")

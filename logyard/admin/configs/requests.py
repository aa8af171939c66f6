"""Settings of topics, brokers, users, clients and ips, by requests that `cluster/requests.py` sends."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from logyard.admin.cluster import translation
from logyard.admin.configs.entities import (
    BROKER_LOGGERS,
    BROKERS,
    CLIENTS,
    DEFAULT,
    IPS,
    SCRAM,
    TOPICS,
    USERS,
    BadConfig,
    Entity,
    Setting,
    Synonym,
    parse_credential,
    refuse_unknown,
)
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.znodes.scram_credentials import ITERATIONS_MAX

# ConfigResource.Type.
_RESOURCES = {TOPICS: 2, BROKERS: 4, BROKER_LOGGERS: 8}
_QUOTA_TYPES = {USERS: "user", CLIENTS: "client-id", IPS: "ip"}
_EXACT, _DEFAULT, _ANY = 0, 1, 2
_SET, _DELETE = 0, 1
_MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}


class ConfigSender(Protocol):
    """The part of `requests.ClusterRequests` that is needed."""

    def ask(self, make: Callable[[], Any], node: int | None = None) -> Any: ...

    def scram_users(self, users: Sequence[str] | None) -> dict[str, dict[str, int]]: ...

    def alter_scram(self, user: str, upsert: Mapping[str, tuple[int, str]], delete: Sequence[str]) -> str | None: ...


def describe(sender: ConfigSender, entity: Entity, *, everything: bool = False) -> list[Setting]:
    """The settings of one topic, broker or broker's loggers, by name; only those set on the entity unless
    `everything`."""
    from kafka.protocol.admin import DescribeConfigsRequest

    def make() -> Any:
        resource = (_RESOURCES[entity.type], entity.name, None)
        return DescribeConfigsRequest(resources=[resource], include_synonyms=True, min_version=1)

    result = sender.ask(make, _node(entity)).results[0]
    translation.refuse(result.error_code, result.error_message)
    found = [_setting(entry) for entry in result.configs]
    if not everything and entity.type != BROKER_LOGGERS:
        own = translation.source({TOPICS: 1, BROKERS: 3 if entity.name == DEFAULT else 2}[entity.type])
        found = [one for one in found if one.source == own]
    return sorted(found, key=lambda one: one.name)


def alter(sender: ConfigSender, entity: Entity, add: Mapping[str, str], delete: Sequence[str]) -> None:
    """Set and remove settings. Raises BadConfig if a setting to remove is not set, ApiError if the brokers refuse."""
    from kafka.protocol.admin import IncrementalAlterConfigsRequest

    if delete:
        refuse_unknown(delete, [one.name for one in describe(sender, entity)])
    changes = [(key, _SET, value) for key, value in add.items()] + [(key, _DELETE, None) for key in delete]

    def make() -> Any:
        return IncrementalAlterConfigsRequest(
            resources=[(_RESOURCES[entity.type], entity.name, changes)], validate_only=False
        )

    for result in sender.ask(make, _node(entity)).responses:
        translation.refuse(result.error_code, result.error_message)


def quotas(sender: ConfigSender, entity: Entity) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    """(type → name, key → value) of every entity with exactly these types and, if given, names."""
    from kafka.protocol.admin import DescribeClientQuotasRequest

    def component(index: int) -> tuple[str, int, str | None]:
        kind = _QUOTA_TYPES[entity.types[index]]
        if entity.names is None:
            return kind, _ANY, None
        name = entity.names[index]
        return (kind, _DEFAULT, None) if name == DEFAULT else (kind, _EXACT, name)

    components = [component(index) for index in range(len(entity.types))]
    answer = sender.ask(lambda: DescribeClientQuotasRequest(components=components, strict=True))
    translation.refuse(answer.error_code, answer.error_message)
    kinds = {theirs: ours for ours, theirs in _QUOTA_TYPES.items()}
    found = [
        (
            {kinds[part.entity_type]: part.entity_name for part in entry.entity},
            {one.key: one.value for one in entry.values},
        )
        for entry in answer.entries or ()
    ]
    return sorted(found, key=lambda entry: [(kind, name or "") for kind, name in sorted(entry[0].items())])


def alter_quotas(sender: ConfigSender, entity: Entity, add: Mapping[str, str], delete: Sequence[str]) -> None:
    """Set and remove quotas. Raises BadConfig for a value that is no number or a key to remove that is not set,
    ApiError."""
    from kafka.protocol.admin import AlterClientQuotasRequest

    if delete:
        there = [key for _, values in quotas(sender, entity) for key in values]
        refuse_unknown(delete, there)
    ops = [(key, _number(key, value), False) for key, value in add.items()] + [(key, 0.0, True) for key in delete]
    parts = [
        (_QUOTA_TYPES[kind], None if name == DEFAULT else name)
        for kind, name in zip(entity.types, entity.names or (), strict=True)
    ]
    answer = sender.ask(lambda: AlterClientQuotasRequest(entries=[(parts, ops)], validate_only=False))
    for entry in answer.entries:
        translation.refuse(entry.error_code, entry.error_message)


def alter_credentials(sender: ConfigSender, user: str, add: Mapping[str, str], delete: Sequence[str]) -> None:
    """Set and remove a user's SCRAM credentials. Raises BadConfig, ApiError."""
    upsert = {mechanism: parse_credential(mechanism, text) for mechanism, text in add.items() if mechanism in SCRAM}
    for mechanism, (iterations, _) in upsert.items():
        if iterations > ITERATIONS_MAX:  # brokers refuse it, but only once it has been computed here
            raise BadConfig(f"Iterations {iterations} is more than the maximum {ITERATIONS_MAX} for {mechanism}")
    problem = sender.alter_scram(user, upsert, delete)
    if problem is not None:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"user {user}: {problem}")


def credential_lines(sender: ConfigSender, users: Sequence[str] | None) -> list[str]:
    """The lines of `describe` about users' credentials, without the credentials."""
    return [
        f"SCRAM credential configs for user-principal '{user}' are "
        + ", ".join(f"{mechanism}=iterations={iterations}" for mechanism, iterations in sorted(found.items()))
        for user, found in sorted(sender.scram_users(users).items())
    ]


def _node(entity: Entity) -> int | None:
    """The broker to ask: only the broker itself for its own settings, any broker for the others."""
    return int(entity.name) if entity.type in (BROKERS, BROKER_LOGGERS) and entity.name else None


def _setting(entry: Any) -> Setting:
    return Setting(
        name=entry.name,
        value=entry.value,
        source=translation.source(entry.config_source),
        sensitive=bool(entry.is_sensitive),
        synonyms=tuple(Synonym(translation.source(s.source), s.name, s.value) for s in entry.synonyms or ()),
    )


def _number(key: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise BadConfig(f"Cannot parse quota configuration value for {key}: {value}") from None

"""AlterConfigs (33): replaces all overrides of a topic or broker by those given. Any broker serves it (facts §1)."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from logyard.broker.config.broker import validate_dynamic_overrides, validate_topic_overrides
from logyard.broker.config.stored_overrides import with_effect
from logyard.broker.controller.policies import ConfigRequest
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.server import authorization
from logyard.broker.server.api import Handler
from logyard.broker.server.config_fields import BROKER, LOGGER, TOPIC, change_overrides, meant_for_another
from logyard.broker.server.large_answers import PARTS_AT_ONCE, Pauses
from logyard.broker.server.logger_levels import alter_levels
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.rights_table import RIGHTS
from logyard.broker.server.services import Services
from logyard.broker.server.turns import in_thread
from logyard.broker.znodes import configs

INCREMENTAL = 44
# What a resource takes without its settings, in parts of an answer.
RESOURCE_PARTS = 25

T = TypeVar("T")
Change = Callable[[dict[str, str]], dict[str, str]]


async def handle(services: Services, request: Request, message: Any) -> Fields:
    return {"responses": await alter_all(services, request, message, _check, lambda resource: _replace(resource))}


def _check(resource: Any) -> None:
    check_settings(resource, resource.configs)


def check_settings(resource: Any, with_value: Iterable[Any]) -> None:
    """Raise ApiError: INVALID_REQUEST, if a setting is named twice or one of `with_value` lacks its value."""
    named = Counter(c.name for c in resource.configs)
    twice = sorted(name for name, count in named.items() if count > 1)
    if twice:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{', '.join(twice)}: named more than once")
    empty = [c.name for c in with_value if c.value is None]
    if empty:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{', '.join(empty)}: a value is needed")


def _replace(resource: Any) -> Change:
    settings = {c.name: c.value for c in resource.configs}
    return lambda before: dict(settings)


async def alter_all(
    services: Services,
    request: Request,
    message: Any,
    check: Callable[[Any], None],
    change: Callable[[Any], Change],
) -> list[Fields]:
    """Change the resources' overrides and return their parts of the answer. `check` raises ApiError for a fault that is
    told before a missing right."""
    pauses = Pauses(services)
    named = await pauses.counted((resource.resource_type, resource.resource_name) for resource in message.resources)
    validate_only = bool(message.validate_only)

    def checked(resource: Any) -> Change:
        if named[resource.resource_type, resource.resource_name] > 1:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        check(resource)
        return change(resource)

    answers = []
    for resource in message.resources:
        await pauses.after(RESOURCE_PARTS)
        answers.append(await _answered(services, request, resource, checked, validate_only))
    return answers


async def _answered(
    services: Services, request: Request, resource: Any, checked: Callable[[Any], Change], validate_only: bool
) -> Fields:
    head = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
    try:
        change = await _look(services, resource, lambda: checked(resource))
        await _alter(services, request, resource, change, validate_only)
    except ApiError as refusal:
        return {**head, "error_code": int(refusal.code), "error_message": refusal.message}
    return {**head, "error_code": 0, "error_message": None}


async def _look(services: Services, resource: Any, look: Callable[[], T]) -> T:
    """Look at all settings of a resource: in a thread where they are many."""
    return await in_thread(services.replicas, look) if len(resource.configs) > PARTS_AT_ONCE else look()


async def _alter(services: Services, request: Request, resource: Any, change: Change, validate_only: bool) -> None:
    row = RIGHTS[request.api_key]
    kind, name = resource.resource_type, resource.resource_name

    def ask_policy() -> None:
        """Pass the settings in the request, not all overrides, to alter.config.policy.class.name (KIP-133)."""
        if services.alter_config_policy is not None:
            named = {c.name: c.value for c in resource.configs}
            services.alter_config_policy(ConfigRequest("topic" if kind == TOPIC else "broker", name, named))

    if kind == TOPIC:
        authorization.require(services, request, row.topic, name)
        if not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a topic is named by its name: there is no default topic")
        if name not in services.metadata:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")

        def check_topic(overrides: Mapping[str, str]) -> None:
            validate_topic_overrides(overrides)
            ask_policy()

        known = services.configs.topic_overrides(name)
        if len(resource.configs) > PARTS_AT_ONCE:
            # So many are not what a topic has: then what is below, in one turn, is not come to.
            await _look(services, resource, lambda: validate_topic_overrides(change(dict(known))))
        await change_overrides(services.zk, configs.TOPICS, name, change, check_topic, validate_only=validate_only)
    elif kind == BROKER:
        if name not in ("", str(services.broker_id)):
            raise meant_for_another(services.broker_id, name)

        def allowed() -> None:
            authorization.require(services, request, row.cluster)

        await _alter_broker(services, resource, change, allowed, ask_policy, validate_only)
    elif kind == LOGGER and request.api_key == INCREMENTAL:
        authorization.require(services, request, row.cluster)
        alter_levels(services, resource, validate_only=validate_only)
    else:  # AlterConfigs, which is the older one, has no loggers, whoever asks
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"resource type {kind}: only topics (2) and brokers (4) have such settings"
        )


async def _alter_broker(
    services: Services,
    resource: Any,
    change: Change,
    allowed: Callable[[], None],
    ask_policy: Callable[[], None],
    validate_only: bool,
) -> None:
    """Change the overrides of this broker, or those of every broker if the name is empty.

    `allowed` and `ask_policy` raise ApiError to refuse; a value that is wrong is refused before.
    """
    name: str = resource.resource_name
    entity, tls = name or configs.DEFAULT, services.tls
    known = services.configs.entity_overrides(entity)
    named = await _look(services, resource, lambda: {setting.name for setting in resource.configs})

    def looked_at(overrides: Mapping[str, str]) -> dict[str, str]:
        """As in Kafka, what is stored without effect, and not named now, is left as it is."""
        acting = with_effect(overrides, cluster_wide=not name)
        return {key: value for key, value in overrides.items() if key in named or key in acting}

    def check(overrides: Mapping[str, str]) -> None:
        validate_dynamic_overrides(services.config, looked_at(overrides), cluster_wide=not name)
        ask_policy()

    def encoded(before: dict[str, str]) -> dict[str, str]:
        after = change(dict(before))
        return after if tls is None else tls.encoded(before, after)

    def wanted() -> dict[str, str]:
        after = change(dict(known))
        validate_dynamic_overrides(services.config, looked_at(after), cluster_wide=not name)
        return after

    after = await _look(services, resource, wanted)
    allowed()
    if tls is not None and name:
        # The files of key stores are read here too: a change of this broker has them read again.
        await tls.check(services.config.with_dynamic(tls.decoded(looked_at(after), known)))
    await change_overrides(services.zk, configs.BROKERS, entity, encoded, check, validate_only=validate_only)


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {
        "responses": [
            {
                "error_code": int(code),
                "error_message": text,
                "resource_type": r.resource_type,
                "resource_name": r.resource_name,
            }
            for r in message.resources
        ]
    }


HANDLER = Handler(message=handle, error=error)

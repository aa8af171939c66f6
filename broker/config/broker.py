"""A broker's configuration: Kafka's server.properties and keys, read together, so that every problem is reported.

A value comes from the first of these that has one: this broker's dynamic override, the cluster-wide dynamic override,
the file (with command-line overrides), the default. Of keys with several units (log.retention.ms / .minutes / .hours)
the finest has the effective value.
"""

import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import dropwhile, islice
from typing import TypeVar

from logyard.broker.config import http_side
from logyard.broker.config.acted_on import ACTED_ON, DYNAMIC, DYNAMIC_PER_BROKER, ONLY_IF_GIVEN
from logyard.broker.config.endpoints import (
    advertise_problems,
    listen_problems,
    parse_endpoints,
    parse_host_port,
    parse_protocol_map,
)
from logyard.broker.config.entries import ConfigEntry, ConfigSource, ConfigSynonym
from logyard.broker.config.fallbacks import resolve
from logyard.broker.config.inter_broker_protocol import InterBrokerProtocol
from logyard.broker.config.key_types import ConfigValue, Key, format_value
from logyard.broker.config.keys import KEYS
from logyard.broker.config.listener_keys import (
    base_of,
    given_of,
    is_of_listener,
    is_security_of_listener,
    key_of,
    of_unknown_listeners,
    prefixed,
)
from logyard.broker.config.listener_settings import ListenerSettings
from logyard.broker.config.nearest import nearest
from logyard.broker.config.properties import parse_properties
from logyard.broker.config.relations import relation_problems
from logyard.broker.config.security_keys import RENEWABLE
from logyard.broker.config.topic import LONG_MAX, TopicConfig
from logyard.broker.config.topic_keys import TOPIC_KEYS, topic_problems
from logyard.broker.config.typed_values import TypedValues
from logyard.broker.errors import ApiError, ErrorCode, LogyardError
from logyard.broker.model import Endpoint

T = TypeVar("T")

DEFAULT_ENTITY = "<default>"


class ConfigProblems(LogyardError):
    """The configuration cannot be used; `problems` has one line for each thing that is wrong."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


# Keys that fall back to others if they are not set.
_SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "log.retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "log.retention.minutes": ("log.retention.minutes", "log.retention.hours"),
    "log.roll.ms": ("log.roll.ms", "log.roll.hours"),
    "log.roll.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "log.dirs": ("log.dirs", "log.dir"),
}


class BrokerConfig(TypedValues):
    """See the head of this file. Immutable: `with_dynamic` makes another one."""

    def __init__(
        self,
        static: Mapping[str, str],
        dynamic: Mapping[str, str] | None = None,
        dynamic_default: Mapping[str, str] | None = None,
        warnings: list[str] | None = None,
        learned: Mapping[str, str] | None = None,
    ) -> None:
        """Use `parse` instead. `learned` has values found at the start, which no relation restricts.

        Raises ConfigProblems.
        """
        self.warnings: list[str] = warnings or []
        self._layers: tuple[tuple[ConfigSource, Mapping[str, str]], ...] = (
            (ConfigSource.DYNAMIC_BROKER, dynamic or {}),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER, dynamic_default or {}),
            (ConfigSource.STATIC_BROKER, static),
        )
        problems: list[str] = []
        self._given = self._typed(problems)
        defaults = {name: key.default for name, key in KEYS.items()}
        if not problems:
            problems += relation_problems(resolve({**defaults, **self._given}))
        self._learned = learned or {}
        self._given.update({name: KEYS[name].parse(text) for name, text in self._learned.items()})
        super().__init__(resolve({**defaults, **self._given}))
        self.ibp = _attempt(
            problems,
            "inter.broker.protocol.version",
            lambda: InterBrokerProtocol.from_text(self.str("inter.broker.protocol.version")),
            max(InterBrokerProtocol),
        )
        self.listeners, self.advertised_listeners = self._endpoints(problems)
        problems += http_side.problems(self, self.listeners, self.listener)
        if problems:
            raise ConfigProblems(problems)

    @classmethod
    def parse(cls, text: str, overrides: Mapping[str, str] | None = None, strict: bool = False) -> "BrokerConfig":
        """Read server.properties; `overrides` take precedence over it. `.warnings` names keys without effect.

        Raises ConfigProblems with everything that is wrong; with `strict` a key without effect is wrong too.
        """
        try:
            static = {**parse_properties(text), **(overrides or {})}
        except ValueError as problem:
            raise ConfigProblems([str(problem)]) from None
        without_effect = [line for name in static if (line := _without_effect(name)) is not None]
        try:
            config = cls(static)
        except ConfigProblems as found:
            raise ConfigProblems([*(without_effect if strict else ()), *found.problems]) from None
        config.warnings = [*without_effect, *of_unknown_listeners(static, config.listeners)]
        if strict and config.warnings:
            raise ConfigProblems(config.warnings)
        return config

    def with_dynamic(
        self, overrides: Mapping[str, str], cluster_wide: Mapping[str, str] | None = None
    ) -> "BrokerConfig":
        """Return this configuration with the overrides of this broker and those of every broker.

        Keys that cannot change while a broker runs are left out, with a warning. Raises ConfigProblems.
        """
        own = {name: value for name, value in overrides.items() if _is_dynamic(name)}
        shared = {name: value for name, value in (cluster_wide or {}).items() if _is_dynamic(name)}
        every = {name: value for name, value in shared.items() if not _is_of_one_broker(name)}
        ignored = [name for name in {**overrides, **(cluster_wide or {})} if not _is_dynamic(name)]
        warnings = [f"{name}: cannot change while the broker runs, the override is ignored" for name in ignored]
        return BrokerConfig(self._layers[2][1], own, every, warnings, self._learned)

    def with_static(self, learned: Mapping[str, str]) -> "BrokerConfig":
        """Return this configuration with values found at the start: a generated broker.id, a bound address."""
        dynamic, dynamic_default, static = (layer for _, layer in self._layers)
        return BrokerConfig(static, dynamic, dynamic_default, self.warnings, {**self._learned, **learned})

    @property
    def broker_id(self) -> int:
        """The configured id, -1 if one is to be generated."""
        return self.int("broker.id")

    @property
    def log_dirs(self) -> tuple[str, ...]:
        return tuple(part.strip() for part in self.str("log.dirs").split(",") if part.strip())

    @property
    def inter_broker_listener(self) -> str:
        """The name of the listener that brokers use among themselves."""
        return (self.optional_str("inter.broker.listener.name") or self.str("security.inter.broker.protocol")).upper()

    @property
    def control_plane_listener(self) -> str:
        """The name of the listener between controller and brokers: control.plane.listener.name, or inter-broker."""
        return (self.optional_str("control.plane.listener.name") or self.inter_broker_listener).upper()

    def int_of_listener(self, listener: str, key: str) -> int:
        """A listener's own whole number; the broker's if the listener has none."""
        own = prefixed(listener, key)
        return self.int(own if own in self._given else key)

    def listener(self, name: str, *, only_asks: bool = False) -> ListenerSettings:
        """Return the settings of one of `listeners`. Raises KeyError if there is none of that name."""
        endpoint = next((e for e in self.listeners if e.listener == name), None)
        if endpoint is None:
            raise KeyError(name)
        return ListenerSettings(endpoint, self._given, self._values, only_asks=only_asks)

    def security_of_listeners(self) -> dict[str, ConfigValue]:
        """Return the settings of TLS and SASL that listeners have for themselves, by their full names."""
        return {name: value for name, value in self._given.items() if is_security_of_listener(name)}

    @property
    def http_listener(self) -> tuple[str, int]:
        """The address that HTTP binds: host and port (0: any free one)."""
        return parse_host_port(self.str("http.listener"))

    def topic_defaults(self) -> TopicConfig:
        """The settings of a topic that overrides nothing."""
        return _topic_config(
            TopicConfig(),
            {name: self._values[topic.synonyms[0]] for name, topic in TOPIC_KEYS.items() if topic.synonyms},
        )

    def describe(self) -> list[ConfigEntry]:
        """Return every key of a broker, and the keys that exist only if given (of a listener, throttles of moves).

        Sorted by name.
        """
        everywhere = KEYS.keys() - ONLY_IF_GIVEN
        given = [*given_of(self._given), *(ONLY_IF_GIVEN & self._given.keys())]
        return [self._entry(name) for name in sorted([*everywhere, *given])]

    def describe_topic(self, overrides: Mapping[str, str]) -> list[ConfigEntry]:
        """Every key of a topic with these overrides, sorted by name."""
        entries = []
        for name, topic in sorted(TOPIC_KEYS.items()):
            own = [ConfigSynonym(name, overrides[name], ConfigSource.TOPIC)] if name in overrides else []
            synonyms = [*own, *self._synonyms(topic.synonyms)]
            if own:
                value, source = own[0].value, ConfigSource.TOPIC
            else:
                source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
                value = format_value(self._values[topic.synonyms[0]] if topic.synonyms else topic.key.default)
            doc = _TOPIC_DOC.get(name) or (ACTED_ON.get(topic.synonyms[0], "") if topic.synonyms else "")
            entries.append(ConfigEntry(name, value, source, False, False, tuple(synonyms), topic.key.type, doc))
        return entries

    def _entry(self, name: str) -> ConfigEntry:
        key = _known(name)
        base = base_of(name)
        synonyms = self._synonyms(_SYNONYMS.get(name, (name,) if base is None else (name, base)))
        mine = next((s.source for s in synonyms if s.name == name), ConfigSource.DEFAULT)
        value = None if key.sensitive else format_value(self._given.get(name, key.default))
        doc = ACTED_ON.get(name, "")
        return ConfigEntry(name, value, mine, key.sensitive, name not in DYNAMIC, tuple(synonyms), key.type, doc)

    def _synonyms(self, names: tuple[str, ...]) -> list[ConfigSynonym]:
        """Return what was given for these keys, in order of precedence, then their defaults.

        As in Kafka (ConfigHelper.configSynonyms) the list begins with the first entry of the first key itself: hours
        are listed after milliseconds that were given, but not if only hours were given.
        """
        found = []
        for name in names:
            key = _known(name)
            for source, layer in ((ConfigSource.STATIC_BROKER, self._learned), *self._layers):
                if name in layer:
                    found.append(ConfigSynonym(name, None if key.sensitive else layer[name], source))
        for name in names:
            default = format_value(_known(name).default)
            if default is not None and name not in ONLY_IF_GIVEN:
                found.append(ConfigSynonym(name, default, ConfigSource.DEFAULT))
        return list(dropwhile(lambda synonym: synonym.name != names[0], found))

    def _typed(self, problems: list[str]) -> dict[str, ConfigValue]:
        """Read what was given; the strongest layer wins."""
        given: dict[str, ConfigValue] = {}
        for _, layer in reversed(self._layers):
            for name, text in layer.items():
                key = key_of(name)
                if key is not None:
                    given[name] = _attempt(problems, "", lambda key=key, text=text: key.parse(text), key.default)  # type: ignore[misc]
        for key in KEYS.values():
            if key.required and given.get(key.name) is None and not any(p.startswith(key.name) for p in problems):
                problems.append(f"{key.name}: required, and not set")
        return given

    def _endpoints(self, problems: list[str]) -> tuple[tuple[Endpoint, ...], tuple[Endpoint, ...]]:
        """Read both lists of listeners; an advertised host left out is this machine's name, as in Kafka."""
        name = "listener.security.protocol.map"
        protocols = _attempt(problems, name, lambda: parse_protocol_map(self.str(name)), None)
        if protocols is None:
            return (), ()
        listeners = _attempt(problems, "listeners", lambda: parse_endpoints(self.str("listeners"), protocols), None)
        if listeners is None:
            return (), ()
        told = self.optional_str("advertised.listeners")
        advertised = listeners
        if told:
            advertised = _attempt(problems, "advertised.listeners", lambda: parse_endpoints(told, protocols), listeners)
        advertised = tuple(e if e.host else replace(e, host=socket.gethostname()) for e in advertised)
        problems += listen_problems(listeners)
        control = self.optional_str("control.plane.listener.name")
        problems += advertise_problems(advertised, listeners, self.inter_broker_listener, control and control.upper())
        if self._given.get("inter.broker.listener.name") and "security.inter.broker.protocol" in self._given:
            problems.append("inter.broker.listener.name: leave it or security.inter.broker.protocol out")
        return listeners, advertised


def topic_config(defaults: TopicConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """Return a topic's settings; overrides that do not parse are left out, the others act."""
    values: dict[str, ConfigValue] = {}
    for name, text in overrides.items():
        topic = TOPIC_KEYS.get(name)
        if topic is not None:
            try:
                values[name] = topic.key.parse(text)
            except ValueError:
                continue
    return _topic_config(defaults, values)


def validate_topic_overrides(overrides: Mapping[str, str]) -> None:
    """Raise ApiError(INVALID_CONFIG) naming every override that is unknown or not allowed; of more than there are
    settings, those among the first."""
    if len(overrides) > len(TOPIC_KEYS):
        overrides = dict(islice(overrides.items(), len(TOPIC_KEYS) + 1))
    problems: list[str] = []
    values: dict[str, ConfigValue] = {}
    for name, text in overrides.items():
        topic = TOPIC_KEYS.get(name)
        if topic is None:
            problems.append(f"{name}: no setting of a topic{nearest(name, TOPIC_KEYS, len(problems))}")
        elif (value := _attempt(problems, "", lambda key=topic.key, text=text: key.parse(text), None)) is not None:  # type: ignore[misc]
            values[name] = value
    problems += topic_problems(values)
    if problems:
        raise ApiError(ErrorCode.INVALID_CONFIG, "; ".join(problems))


def validate_dynamic_overrides(config: BrokerConfig, overrides: Mapping[str, str], *, cluster_wide: bool) -> None:
    """Raise ApiError if these cannot be dynamic overrides of a broker, or of all brokers.

    The code is INVALID_REQUEST as in Kafka, for a wrong value too. An unknown key gets INVALID_CONFIG; Kafka would
    keep it.
    """
    static = sorted(name for name in overrides if name in KEYS and name not in DYNAMIC)
    if static:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: Set({', '.join(static)})")
    bare = sorted(name for name in overrides if name in RENEWABLE)
    if bare:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{', '.join(bare)}: can change as listener.name.<listener>.… only")
    unknown = [name for name in overrides if not _acts(name)]
    if unknown:
        told = (f"{name}: unknown{nearest(name, KEYS, number)}" for number, name in enumerate(unknown))
        raise ApiError(ErrorCode.INVALID_CONFIG, "; ".join(told))
    problems = [f"{n}: can only be set for one broker" for n in overrides if cluster_wide and _is_of_one_broker(n)]
    if not problems:
        try:
            config.with_dynamic(*(({}, overrides) if cluster_wide else (overrides,)))
        except ConfigProblems as found:
            problems = found.problems
    if problems:
        raise ApiError(ErrorCode.INVALID_REQUEST, "; ".join(problems))


_TOPIC_DOC = {
    "follower.replication.throttled.replicas": "Followers whose fetching is throttled: partition:broker pairs, or *.",
    "leader.replication.throttled.replicas": "Leaders that throttle their followers: partition:broker pairs, or *.",
}


def _topic_config(defaults: TopicConfig, values: Mapping[str, ConfigValue]) -> TopicConfig:
    changed: dict[str, object] = {TOPIC_KEYS[name].field: value for name, value in values.items() if value is not None}
    policy = values.get("cleanup.policy")
    if isinstance(policy, tuple):
        changed["cleanup_policy"] = frozenset(policy)
    config = replace(defaults, **changed)  # type: ignore[arg-type]  # the types are those of the table
    # The older of the two bounds of timestamps holds if the newer one is not set.
    difference = config.message_timestamp_difference_max_ms
    if difference == LONG_MAX:
        return config
    before, after = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
    return replace(
        config,
        message_timestamp_before_max_ms=difference if before == LONG_MAX else before,
        message_timestamp_after_max_ms=difference if after == LONG_MAX else after,
    )


def _known(name: str) -> Key:
    key = key_of(name)
    if key is None:
        raise KeyError(name)
    return key


def _is_dynamic(name: str) -> bool:
    return name in DYNAMIC or is_of_listener(name)


def _acts(name: str) -> bool:
    """Whether it is a key of Kafka's for brokers, or a listener's that acts."""
    return name in KEYS or is_of_listener(name)


def _is_of_one_broker(name: str) -> bool:
    return name in DYNAMIC_PER_BROKER or is_security_of_listener(name)


def _without_effect(name: str) -> str | None:
    if name in ACTED_ON or is_of_listener(name):
        return None
    if name in KEYS or base_of(name) in KEYS:
        return f"{name}: Kafka knows it, Logyard does not act on it{nearest(name, ACTED_ON)}"
    return f"{name}: unknown{nearest(name, KEYS)}"


def _attempt(problems: list[str], name: str, work: Callable[[], T], otherwise: T) -> T:
    try:
        return work()
    except ValueError as problem:
        problems.append(f"{name}: {problem}" if name else str(problem))
        return otherwise

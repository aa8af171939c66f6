"""The entities and settings of kafka-configs, and its output. Pure.

An entity is one or two (type, name) pairs; the empty name stands for the default entity of its type.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from logyard.broker.errors import LogyardError
from logyard.broker.znodes import configs
from logyard.broker.znodes.scram_credentials import ITERATIONS_MAX, ITERATIONS_MIN, MECHANISMS, ScramCredential

TOPICS, BROKERS, CLIENTS, USERS, IPS = configs.TOPICS, configs.BROKERS, configs.CLIENTS, configs.USERS, configs.IPS
BROKER_LOGGERS = "broker-loggers"
TYPES = (TOPICS, BROKERS, BROKER_LOGGERS, CLIENTS, USERS, IPS)
DEFAULT = ""

QUOTAS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
IP_QUOTAS = ("connection_creation_rate",)
SCRAM = frozenset(MECHANISMS.values())
SCRAM_ITERATIONS = ITERATIONS_MIN

_KEY = re.compile(r"[a-zA-Z0-9._-]*")
_CREDENTIAL = re.compile(r"(?:iterations=(-?[0-9]*),)?password=(.*)")
_SPOKEN = {USERS: "user-principal", CLIENTS: "client-id", TOPICS: "topic", IPS: "ip"}


class BadConfig(LogyardError):
    """Invalid options, or settings that do not exist; the text names them."""


@dataclass(frozen=True, slots=True)
class Entity:
    """`names` None: every entity of these types."""

    types: tuple[str, ...]
    names: tuple[str, ...] | None = None

    @property
    def type(self) -> str:
        return self.types[0]

    @property
    def name(self) -> str | None:
        return self.names[0] if self.names else None

    @property
    def is_quota(self) -> bool:
        return self.type in (USERS, CLIENTS, IPS)


@dataclass(frozen=True, slots=True)
class Synonym:
    """Another source of a setting's value."""

    source: str
    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of an entity, as brokers return it. `value` is None for a secret."""

    name: str
    value: str | None
    source: str
    sensitive: bool = False
    synonyms: tuple[Synonym, ...] = ()

    def __str__(self) -> str:
        synonyms = ", ".join(f"{one.source}:{one.name}={_java(one.value)}" for one in self.synonyms)
        return f"  {self.name}={_java(self.value)} sensitive={str(self.sensitive).lower()} synonyms={{{synonyms}}}"


def make_entity(types: Sequence[str], names: Sequence[str], *, all_names: bool) -> Entity:
    """Check the types and names; `all_names`: no name means every entity (to describe). Raises BadConfig."""
    if not types:
        raise BadConfig(
            "At least one entity type must be specified: --topic, --broker, --user, --client or --entity-type"
        )
    for one in types:
        if one not in TYPES:
            raise BadConfig(f"Invalid entity type {one}, the entity type must be one of {', '.join(TYPES)}")
    if len(set(types)) < len(types):
        raise BadConfig(f"Duplicate entity type(s) specified: {','.join(sorted(set(types)))}")
    if len(types) > 1 and set(types) != {USERS, CLIENTS}:
        raise BadConfig("Only 'users' and 'clients' entity types may be specified together")
    if len(names) > len(types):
        raise BadConfig("More entity names specified than entity types")
    if len(names) < len(types) and not (all_names and not names):
        raise BadConfig("An entity name must be specified for every entity type")
    pairs = dict(zip(types, names, strict=False))
    for kind, name in pairs.items():
        if kind in (BROKERS, BROKER_LOGGERS) and name != DEFAULT and not name.isdecimal():
            raise BadConfig(f"The entity name for {kind} must be a valid integer broker id, but it is: {name}")
        if kind in (TOPICS, BROKER_LOGGERS) and name == DEFAULT:
            raise BadConfig(f"{kind} have no default entity")
    order = tuple(sorted(types, key=(USERS, CLIENTS).index)) if len(types) > 1 else tuple(types)
    return Entity(order, tuple(pairs[kind] for kind in order) if names else None)


def parse_additions(text: str) -> dict[str, str]:
    """Parse `k1=v1,k2=[v1,v2]`: brackets keep commas together. Raises BadConfig."""
    found = {}
    for pair in re.split(r",(?=[^\]]*(?:\[|$))", text):
        key, equals, value = pair.partition("=")
        if not equals:
            raise BadConfig('Invalid entity config: all configs to be added must be in the format "key=val".')
        found[key.strip()] = re.sub(r"[\[\]]", "", value.strip())
    return check_keys(found)


def check_keys(values: Mapping[str, str]) -> dict[str, str]:
    for key in values:
        if not _KEY.fullmatch(key):
            raise BadConfig(f"Invalid character found for config key: {key}")
    return dict(values)


def refuse_unknown(delete: Iterable[str], there: Iterable[str]) -> None:
    """Raise BadConfig with the settings that are to be removed and are not set."""
    missing = [key for key in delete if key not in set(there)]
    if missing:
        raise BadConfig(f"Invalid config(s): {','.join(missing)}")


def check_client_settings(entity: Entity, keys: Iterable[str]) -> None:
    """Raise BadConfig for settings that users, clients or ips cannot have."""
    named = list(keys)
    if entity.type == IPS:
        wrong, allowed = [key for key in named if key not in IP_QUOTAS], "Only connection quota configs"
    elif entity.types == (USERS,):
        wrong = [key for key in named if key not in (*QUOTAS, *SCRAM)]
        allowed = "Only quota and SCRAM credential configs"
    else:
        wrong, allowed = [key for key in named if key not in QUOTAS], "Only quota configs"
    if wrong:
        kind = CLIENTS if CLIENTS in entity.types else entity.type
        raise BadConfig(f"{allowed} can be set for '{kind}'. Unexpected config names: {', '.join(wrong)}")
    scram = [key for key in named if key in SCRAM]
    if scram and entity.name == DEFAULT:
        raise BadConfig("The use of --entity-default or --user-defaults is not allowed with User SCRAM Credentials")
    if scram and len(scram) < len(named):
        raise BadConfig("Cannot alter both quota and SCRAM credential configs simultaneously for 'users'")


def parse_credential(mechanism: str, text: str) -> tuple[int, str]:
    """Parse `[iterations=8192,]password=secret` into (iterations, password). Raises BadConfig, never with the
    secret."""
    match = _CREDENTIAL.fullmatch(text)
    if match is None:
        raise BadConfig(f"Invalid credential property {mechanism}: write [iterations=8192,password=…]")
    if len(match[1] or "") > 9:
        raise BadConfig(
            f"Iterations {match[1][:20]} are more than anybody can compute: up to {ITERATIONS_MAX} are usual"
        )
    iterations = int(match[1]) if match[1] not in (None, "", "-1") else SCRAM_ITERATIONS
    if iterations < SCRAM_ITERATIONS:
        raise BadConfig(f"Iterations {iterations} is less than the minimum {SCRAM_ITERATIONS} required for {mechanism}")
    return iterations, match[2]


def credential(mechanism: str, password: str, iterations: int, salt: bytes) -> str:
    """The value in a user's znode (RFC 5802; facts §18)."""
    return ScramCredential.of_password(mechanism, password, iterations, salt).text()


# -- words ---------------------------------------------------------------------------------------------


def heading(entity: Entity, *, everything: bool) -> str:
    if entity.name == DEFAULT:
        return f"Default configs for {entity.type} in the cluster are:"
    return f"{'All' if everything else 'Dynamic'} configs for {entity.type[:-1]} {entity.name} are:"


def updated(entity: Entity) -> str:
    if entity.name == DEFAULT:
        return f"Completed updating default config for {entity.type} in the cluster."
    return f"Completed updating config for {entity.type[:-1]} {entity.name}."


def quota_line(names: Mapping[str, str | None], values: Mapping[str, float]) -> str:
    """`names`: type → name, None for the default."""
    spoken = [
        f"{_SPOKEN[kind]} '{names[kind]}'" if names[kind] is not None else f"the default {_SPOKEN[kind]}"
        for kind in (USERS, CLIENTS, IPS)
        if kind in names
    ]
    entries = ", ".join(f"{key}={java_double(values[key])}" for key in sorted(values, key=_java_bucket))
    return f"Quota configs for {', '.join(spoken)} are {entries}"


def znode_line(entity: Entity, values: Mapping[str, str]) -> str:
    return f"Configs for {spoken_entity(entity)} are {','.join(f'{k}={v}' for k, v in values.items())}"


def spoken_entity(entity: Entity) -> str:
    """An entity's name in the output of Kafka's tool with --zookeeper."""
    return ", ".join(
        f"default {_SPOKEN.get(kind, kind)}" if name == DEFAULT else f"{_SPOKEN.get(kind, kind)} '{name}'"
        for kind, name in zip(entity.types, entity.names or (), strict=True)
    )


def _java_bucket(key: str) -> tuple[int, str]:
    """A key's position in a Java HashMap of up to twelve keys: the order in which Kafka's tool prints quotas."""
    found = 0
    for letter in key:
        found = (found * 31 + ord(letter)) & 0xFFFFFFFF
    return (found ^ found >> 16) & 15, key


def java_double(value: float) -> str:
    """A number as Java prints a double: 1024.0, 1.0E7."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    mantissa, _, exponent = f"{value:e}".partition("e")
    shortest = repr(float(value))
    digits = re.sub(r"e.*|\D", "", shortest).strip("0") or mantissa
    sign = "-" if value < 0 else ""
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{int(exponent)}"


def _java(value: str | None) -> str:
    return "null" if value is None else value

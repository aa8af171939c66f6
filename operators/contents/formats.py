"""Keys and values as a DAG's functions want them: text, JSON, MessagePack, or by the schemas of a registry.

The last are decoded in a process of its own (docs/decisions/0040), which is begun when the first of them comes.
"""

import json
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any, Protocol

import msgspec

from logyard.admin.schema_registry import SchemaRegistry
from logyard.admin.settings import BadSettings
from logyard.operators.contents.schemas.decoder import BySchema, Decoder
from logyard.operators.contents.schemas.problems import BadRecord, RegistryAway, Undecoded

BYTES, TEXT, JSON, MESSAGEPACK, REGISTRY = "bytes", "text", "json", "messagepack", "registry"
FORMATS = (BYTES, TEXT, JSON, MESSAGEPACK, REGISTRY)
ANSWER_S = 20.0
"""What one record may take. A task has more patience than a reader of the page: too slow means undecoded for good."""
TRIES = 2
PACKAGES = ("httpx", "fastavro", "google.protobuf", "grpc_tools")


class Message(Protocol):
    """The part of `confluent_kafka.Message` that is used."""

    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def key(self) -> Any: ...
    def value(self) -> Any: ...
    def set_key(self, key: Any) -> None: ...
    def set_value(self, value: Any) -> None: ...


class Formats:
    """How keys and values are decoded; `close` ends what that has begun. Raises BadSettings.

    :param key: a format's name: bytes (as they are), text (UTF-8), json, messagepack, registry.
    :param value: the same for values.
    :param registry: the schema registry of the connection.
    """

    def __init__(self, key: str, value: str, registry: SchemaRegistry | None) -> None:
        for name, given in (("key_format", key), ("value_format", value)):
            if given not in FORMATS:
                raise BadSettings(f"{name} {given!r}: one of {', '.join(FORMATS)} is expected")
        self._key, self._value, self._registry = key, value, registry
        self._decoder: Decoder | None = None
        if REGISTRY in (key, value):
            if registry is None:
                raise BadSettings("the format registry needs schema_registry_url in the connection")
            missing = [package for package in PACKAGES if not _is_there(package)]
            if missing:
                raise BadSettings(f"{missing[0]} is missing: pip install 'logyard[schemas]' where the task runs")
            self._decoder = Decoder(answer_s=ANSWER_S, tries=TRIES)

    def decode(self, batch: Sequence[Message], undecoded: Callable[[BadRecord], bool]) -> list[Any]:
        """Puts decoded keys and values into the messages, and returns those to go on with.

        One that cannot be decoded keeps its bytes, of key and value alike; `undecoded` is asked whether to go on with
        it. Raises RegistryAway.
        """
        if self._key == self._value == BYTES:
            return list(batch)
        by_schema = self._by_schema()
        wanted: list[Any] = []
        for message in batch:
            try:
                self._decode(message, by_schema)
            except BadRecord as problem:
                if not undecoded(problem):
                    continue
            wanted.append(message)
        return wanted

    def close(self) -> None:
        if self._decoder is not None:
            self._decoder.close()

    def _by_schema(self) -> BySchema | None:
        if self._decoder is None or self._registry is None:
            return None
        return self._decoder.by(self._registry, None)

    def _decode(self, message: Message, by_schema: BySchema | None) -> None:
        """Raises BadRecord, RegistryAway; then the message is as it was."""
        where = f"{message.topic()}-{message.partition()}, offset {message.offset()}"
        key = _decoded(f"{where}: key", message.key(), self._key, by_schema)
        value = _decoded(f"{where}: value", message.value(), self._value, by_schema)
        message.set_key(key)
        message.set_value(value)


def _decoded(what: str, data: bytes | None, form: str, by_schema: BySchema | None) -> Any:
    """Raises BadRecord, RegistryAway with `what`."""
    if data is None or form == BYTES:
        return data
    try:
        if form == REGISTRY and by_schema is not None:
            return _by_registry(data, by_schema)
        return _plain(data, form)
    except RegistryAway as problem:
        raise RegistryAway(f"{what}: {problem}") from None
    except Undecoded as problem:
        raise BadRecord(f"{what}: {problem}") from None


def _by_registry(data: bytes, by_schema: BySchema) -> Any:
    found = by_schema(data)
    if found is None:
        raise Undecoded("it does not begin as a schema registry's serializers write")
    return found[1]


def _plain(data: bytes, form: str) -> Any:
    try:
        if form == TEXT:
            return data.decode()
        if form == JSON:
            return json.loads(data)
        return msgspec.msgpack.decode(data)
    except RecursionError:
        raise Undecoded("it is nested too deep") from None
    except UnicodeDecodeError:
        raise Undecoded("it is no UTF-8") from None
    except (msgspec.DecodeError, ValueError):
        raise Undecoded(f"it is no {'JSON' if form == JSON else 'MessagePack'}") from None


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # a package above it
        return False

"""Values of settings that stand elsewhere: `${file:/run/kafka.properties:password}`, as Kafka's config providers.

    config.providers=file,dir,env
    config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
    config.providers.dir.class=org.apache.kafka.common.config.provider.DirectoryConfigProvider
    config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider

`${file:PATH:KEY}` is a key of a properties file, `${dir:FOLDER:NAME}` the content of a file, `${env:NAME}` a variable.
Each may have a bound: `config.providers.X.param.allowed.paths`, `….param.allowlist.pattern` (for env). They are read
once, at the start. A key or variable that is not there is refused, where Kafka takes the text `${…}` as the password.
"""

import posixpath
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from logyard.broker.config import java_patterns
from logyard.broker.config.properties import parse_properties

PROVIDERS = "config.providers"
_PLACE = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")


@dataclass(frozen=True, slots=True)
class Sources:
    """Where values are read: files, as text (raises OSError, UnicodeDecodeError), and the environment."""

    read: Callable[[str], str]
    environment: Mapping[str, str]


def resolved(settings: Mapping[str, str], sources: Sources) -> dict[str, str]:
    """Return the settings with the values that providers have, and without the providers' own keys.

    Raises ValueError that names the key and never has a value.
    """
    listed = [name.strip() for name in settings.get(PROVIDERS, "").split(",") if name.strip()]
    providers = {name: _provider(name, settings, sources) for name in listed}
    found = {}
    for key, value in settings.items():
        if key != PROVIDERS and not key.startswith(f"{PROVIDERS}."):
            found[key] = _replaced(key, value, providers)
    return found


Lookup = Callable[[str, str], str]
"""Takes a path ("" for none) and a key; raises ValueError with what is wrong."""


def _replaced(key: str, value: str, providers: Mapping[str, Lookup]) -> str:
    def of_place(place: "re.Match[str]") -> str:
        look_up = providers.get(place[1])
        if look_up is None:
            return place[0]
        try:
            return look_up(place[2] or "", place[3])
        except ValueError as problem:
            raise ValueError(f"{key}: {place[0]}: {problem}") from None

    return _PLACE.sub(of_place, value)


def _provider(name: str, settings: Mapping[str, str], sources: Sources) -> Lookup:
    key = f"{PROVIDERS}.{name}"
    paths = [path.strip() for path in settings.get(f"{key}.param.allowed.paths", "").split(",") if path.strip()]
    kind = settings.get(f"{key}.class", "").rpartition(".")[2]
    if kind == "EnvVarConfigProvider":
        pattern = settings.get(f"{key}.param.allowlist.pattern", "")
        return _variables(sources.environment, java_patterns.Pattern(pattern) if pattern else None)
    if kind == "FileConfigProvider":
        return _properties(sources, paths)
    if kind == "DirectoryConfigProvider":
        return _files(sources, paths)
    known = "FileConfigProvider, DirectoryConfigProvider or EnvVarConfigProvider"
    raise ValueError(f"{key}.class: {known} is expected: other classes of Java cannot be loaded")


def _variables(environment: Mapping[str, str], allowed: java_patterns.Pattern | None) -> Lookup:
    def look_up(path: str, name: str) -> str:
        if path or name not in environment or (allowed is not None and not allowed.matches(name)):
            raise ValueError("there is no such variable, or it is not allowed")
        return environment[name]

    return look_up


def _properties(sources: Sources, allowed: list[str]) -> Lookup:
    def look_up(path: str, name: str) -> str:
        found = parse_properties(_read(sources, path, allowed))
        if name not in found:
            raise ValueError("the file has no such key")
        return found[name]

    return look_up


def _files(sources: Sources, allowed: list[str]) -> Lookup:
    def look_up(path: str, name: str) -> str:
        if not path or not name or "/" in name or name in (".", ".."):
            raise ValueError("a folder and the name of a file are expected")
        return _read(sources, f"{path}/{name}", allowed)

    return look_up


def _read(sources: Sources, path: str, allowed: list[str]) -> str:
    plain = posixpath.normpath(path)
    if allowed and not any(
        plain == place or plain.startswith(f"{place.rstrip('/')}/") for place in map(posixpath.normpath, allowed)
    ):
        raise ValueError("the file is not below allowed.paths")
    try:
        return sources.read(plain)
    except OSError as problem:
        raise ValueError(f"the file cannot be read ({problem.strerror})") from None
    except UnicodeDecodeError:
        raise ValueError("the file is no UTF-8 text") from None

"""The JAAS file of this process: login modules for ZooKeeper (section `Client`) and for listeners (`KafkaServer`).

Kafka's JVM is told of it by a system property in the variable KAFKA_OPTS, `-Djava.security.auth.login.config=FILE`.
It is read from there, so that a start script of Kafka's serves; `logyard.jaas.config.file` names the file in the
settings.
"""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from logyard.broker.security.sasl import jaas

KEY = "logyard.jaas.config.file"
OPTIONS = "KAFKA_OPTS"
_PROPERTY = "java.security.auth.login.config"


def path_in(configured: object, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the file's path: what `logyard.jaas.config.file` says, else KAFKA_OPTS; None if neither does."""
    return str(configured or java_properties(environment.get(OPTIONS, "")).get(_PROPERTY) or "") or None


def sections(path: str) -> Mapping[str, tuple[jaas.LoginModule, ...]]:
    """Read the file. Raises ValueError, one line without a secret."""
    try:
        return jaas.parse_file(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "no UTF-8 text"
        raise ValueError(f"the JAAS file {path}: {reason}") from None
    except jaas.BadJaas as problem:
        raise ValueError(f"the JAAS file {path}: {problem}") from None


def java_properties(options: str) -> dict[str, str]:
    """Return the system properties (`-Dname=value`) in the options of a JVM."""
    try:
        words = shlex.split(options)
    except ValueError:
        return {}
    pairs = (word[2:].partition("=") for word in words if word.startswith("-D"))
    return {name: value for name, _, value in pairs}

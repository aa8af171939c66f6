"""`--command-config FILE`: Kafka's client properties, read into the settings of the admin client."""

import re
from collections.abc import Mapping
from pathlib import Path

from logyard.admin.settings import ClusterSettings
from logyard.local.errors import LocalError

# Kafka's key → our setting; librdkafka's names are accepted too.
_SAME = {
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "ssl.truststore.location": "ssl_cafile",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
}
_MILLISECONDS = {"request.timeout.ms": "request_timeout_s", "default.api.timeout.ms": "total_timeout_s"}
_PAIR = re.compile(r"\s*([^#!\s=:][^=:\s]*)\s*[=:]\s*(.*?)\s*$")


def read(path: Path, option: str = "--command-config") -> dict[str, str]:
    """Parse the properties in the file: `key=value` lines, # and ! for comments, a backslash joins lines.

    Raises LocalError if there is no such file or a line is not a property.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise LocalError(f"{option} {path}: {error.strerror}") from error
    found: dict[str, str] = {}
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        if not line.strip() or line.lstrip()[0] in "#!":
            continue
        pair = _PAIR.match(line)
        if pair is None:
            raise LocalError(f"{option} {path}: {line.strip()!r} is not key=value")
        found[pair.group(1)] = pair.group(2)
    return found


def settings(bootstrap: str, properties: Mapping[str, str]) -> ClusterSettings:
    """Return settings for the admin client. Raises LocalError for unsupported properties, BadSettings for wrong
    values."""
    for store in ("truststore", "keystore"):
        kind = properties.get(f"ssl.{store}.type", "PEM" if f"ssl.{store}.location" not in properties else "JKS")
        if kind.upper() != "PEM":
            raise LocalError(f"--command-config: ssl.{store}.type {kind} is not supported: convert the store to PEM")
    extra: dict[str, object] = {_SAME[key]: value for key, value in properties.items() if key in _SAME}
    if "ssl.keystore.location" in properties:
        extra["ssl_certfile"] = extra["ssl_keyfile"] = properties["ssl.keystore.location"]
    if "ssl.endpoint.identification.algorithm" in properties:
        extra["ssl_check_hostname"] = bool(properties["ssl.endpoint.identification.algorithm"])
    for key, name in _MILLISECONDS.items():
        if key in properties:
            extra[name] = _milliseconds(key, properties[key]) / 1000
    jaas = properties.get("sasl.jaas.config", "")
    return ClusterSettings.read(
        bootstrap,
        extra,
        username=_quoted(jaas, "username") or properties.get("sasl.username"),
        password=_quoted(jaas, "password") or properties.get("sasl.password"),
    )


def _milliseconds(key: str, value: str) -> int:
    if not value.isdecimal():
        raise LocalError(f"--command-config: {key}={value}: a number of milliseconds is expected")
    return int(value)


def _quoted(jaas: str, name: str) -> str | None:
    found = re.search(rf'\b{name}\s*=\s*"((?:[^"\\]|\\.)*)"', jaas)
    return re.sub(r"\\(.)", r"\1", found.group(1)) if found else None

"""Settings of brokers that hold secrets, by their names: what may stand in no form, run or log. Pure."""

import re
from collections.abc import Iterable

# The end of a name, since a listener's own settings have a prefix (`listener.name.internal.ssl.key.password`). Beside
# Kafka's settings of the type PASSWORD these are the usual names of what plugins of a broker are given.
_LAST = (
    "password",
    "passphrase",
    "secret",
    "token",
    "credential",
    "credentials",
    r"secret\.key",
    r"master\.key",
    r"private\.key",
    r"access\.key",
    r"api\.key",
    r"keystore\.key",
    r"certificate\.chain",
    r"truststore\.certificates",
    r"jaas\.config",
)
PATTERN = f"(^|[._-])({'|'.join(_LAST)})$"
"""A regular expression, which JSON Schema and JavaScript read too."""

_SECRET = re.compile(PATTERN)


def secret_names(names: Iterable[str]) -> list[str]:
    """Those of the names that a secret has, in their order."""
    return [name for name in names if _SECRET.search(name.strip().lower())]

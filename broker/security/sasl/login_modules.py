"""The login modules of a listener: what `sasl.jaas.config` says for each mechanism (facts §18.1)."""

import secrets
from collections.abc import Callable
from types import MappingProxyType
from typing import Final

from logyard.broker.config.listener_keys import of_mechanism
from logyard.broker.config.listener_settings import ListenerSettings
from logyard.broker.security.sasl import jaas
from logyard.broker.security.sasl import mechanism as names
from logyard.broker.security.sasl.mechanism import ClientExchange
from logyard.broker.security.sasl.plain import PlainClient
from logyard.broker.security.sasl.scram import ScramClient

JAAS = "sasl.jaas.config"
NONCE_BYTES = 24
# Without their package, by mechanism: what Kafka's documentation names.
MODULES: Final = MappingProxyType(
    {
        names.PLAIN: "PlainLoginModule",
        names.SCRAM_SHA_256: "ScramLoginModule",
        names.SCRAM_SHA_512: "ScramLoginModule",
        names.OAUTHBEARER: "OAuthBearerLoginModule",
        names.GSSAPI: "Krb5LoginModule",
    }
)


def login_module(listener: ListenerSettings, mechanism: str) -> jaas.LoginModule | None:
    """Return the login module of a mechanism, None if the listener has none. Raises ValueError, without a secret."""
    key = of_mechanism(listener.name, mechanism, JAAS)
    text = listener.own_of_mechanism(mechanism, JAAS)
    if text is None:
        return None
    try:
        modules = jaas.parse(text)
    except jaas.BadJaas as error:
        raise ValueError(f"{key}: {error}") from None
    if len(modules) != 1:
        raise ValueError(f"{key}: one login module is expected, not {len(modules)}")
    if modules[0].simple_name != MODULES.get(mechanism):
        raise ValueError(f"{key}: {MODULES.get(mechanism)} is expected for {mechanism}, not {modules[0].name}")
    return modules[0]


def client_exchange(listener: ListenerSettings, mechanism: str) -> Callable[[], ClientExchange]:
    """Return what begins this broker's log-in to others: with the user of the **server's** login module.

    Raises ValueError, without a secret.
    """
    if mechanism not in (names.PLAIN, names.SCRAM_SHA_256, names.SCRAM_SHA_512):
        raise ValueError(f"sasl.mechanism.inter.broker.protocol: {mechanism} is not served between brokers")
    if mechanism not in listener.list("sasl.enabled.mechanisms"):
        raise ValueError(f"sasl.mechanism.inter.broker.protocol: {listener.name} does not enable {mechanism}")
    module = login_module(listener, mechanism)
    key = of_mechanism(listener.name, mechanism, JAAS)
    user = None if module is None else module.options.get("username")
    password = None if module is None else module.options.get("password")
    if not user or not password:
        raise ValueError(f"{key}: brokers log in with its `username` and `password`, which are not set")
    known_user, known_password = user, password

    def begin() -> ClientExchange:
        # Not a partial, whose repr would have the password.
        if mechanism == names.PLAIN:
            return PlainClient(known_user, known_password)
        return ScramClient(mechanism, known_user, known_password, secrets.token_urlsafe(NONCE_BYTES))

    return begin

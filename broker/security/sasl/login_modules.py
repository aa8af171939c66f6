"""The login modules of a listener: what `sasl.jaas.config` says for each mechanism (facts §18.1)."""

import secrets
from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import Final

from logyard.broker.config.listener_keys import of_mechanism
from logyard.broker.config.listener_settings import ListenerSettings
from logyard.broker.security.sasl import jaas, jaas_file, kerberos
from logyard.broker.security.sasl import mechanism as names
from logyard.broker.security.sasl.gssapi import GssapiClient
from logyard.broker.security.sasl.mechanism import ClientExchange
from logyard.broker.security.sasl.peer_tokens import peer_tokens
from logyard.broker.security.sasl.plain import PlainClient
from logyard.broker.security.sasl.scram import ScramClient

JAAS = "sasl.jaas.config"
SECTION = "KafkaServer"
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
    """Return the login module of a mechanism, None if the listener has none. Raises ValueError, without a secret.

    Without `sasl.jaas.config` it is that of a section of the JAAS file (facts §18.1).
    """
    key = of_mechanism(listener.name, mechanism, JAAS)
    text = listener.own_of_mechanism(mechanism, JAAS)
    if text is None:
        return _module_in_file(listener, mechanism)
    try:
        modules = jaas.parse(text)
    except jaas.BadJaas as error:
        raise ValueError(f"{key}: {error}") from None
    if len(modules) != 1:
        raise ValueError(f"{key}: one login module is expected, not {len(modules)}")
    if modules[0].simple_name != MODULES.get(mechanism):
        raise ValueError(f"{key}: {MODULES.get(mechanism)} is expected for {mechanism}, not {modules[0].name}")
    return modules[0]


def _module_in_file(listener: ListenerSettings, mechanism: str) -> jaas.LoginModule | None:
    """Return the first fitting module of the section `<listener>.KafkaServer`, or if there is none, `KafkaServer`."""
    path = jaas_file.path_in(listener.optional_str(jaas_file.KEY))
    if path is None:
        return None
    sections = jaas_file.sections(path)
    entries = sections.get(f"{listener.name.lower()}.{SECTION}", sections.get(SECTION, ()))
    return next((entry for entry in entries if entry.simple_name == MODULES.get(mechanism)), None)


def kerberos_of(listener: ListenerSettings) -> tuple[kerberos.Kerberos, str]:
    """Return a listener's Kerberos principal, and the brokers' service name. Raises ValueError."""
    module = login_module(listener, names.GSSAPI)
    key = of_mechanism(listener.name, names.GSSAPI, JAAS)
    try:
        if module is None:
            raise ValueError(f"not set; {kerberos.EXPECTED}")
        keytab = kerberos.keytab_of(module)
        settings = listener.of_mechanism(names.GSSAPI)
        service = kerberos.service_name(module, settings.optional_str(kerberos.SERVICE_NAME))
        found = kerberos.Kerberos(keytab)
        found.check()
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None
    return found, service


def own_login(listener: ListenerSettings, mechanism: str) -> tuple[str, str] | None:
    """Return user and password of the **server's** login module, with which this broker logs in to others.

    None if they are not set. Raises ValueError, without a secret.
    """
    module = login_module(listener, mechanism)
    user = None if module is None else module.options.get("username")
    password = None if module is None else module.options.get("password")
    return (user, password) if user and password else None


def client_exchange(
    listener: ListenerSettings, mechanism: str, now_ms: Callable[[], int]
) -> Callable[[str], ClientExchange]:
    """Return what begins this broker's log-in to a host: with the user of the **server's** login module.

    `now_ms` is the wall clock, as in tokens. Raises ValueError, without a secret.
    """
    if mechanism not in MODULES:
        raise ValueError(f"sasl.mechanism.inter.broker.protocol: {mechanism} is not served between brokers")
    if mechanism not in listener.list("sasl.enabled.mechanisms"):
        raise ValueError(f"sasl.mechanism.inter.broker.protocol: {listener.name} does not enable {mechanism}")
    if mechanism == names.GSSAPI:
        principal, service = kerberos_of(listener)
        return lambda host: GssapiClient(partial(principal.initiator, service, host))
    if mechanism == names.OAUTHBEARER:
        tokens = peer_tokens(listener, login_module(listener, mechanism), now_ms)
        return lambda host: tokens.client()
    known = own_login(listener, mechanism)
    if known is None:
        key = of_mechanism(listener.name, mechanism, JAAS)
        raise ValueError(f"{key}: brokers log in with its `username` and `password`, which are not set")
    known_user, known_password = known

    def begin(host: str) -> ClientExchange:
        # Not a partial, whose repr would have the password.
        if mechanism == names.PLAIN:
            return PlainClient(known_user, known_password)
        return ScramClient(mechanism, known_user, known_password, secrets.token_urlsafe(NONCE_BYTES))

    return begin

"""Whether a listener may go on with other stores, as Kafka decides it (facts §18.2)."""

import ssl
from dataclasses import dataclass

from logyard.broker.config.listener_settings import ListenerSettings
from logyard.broker.tls.context import client_context, read_stores, server_context
from logyard.broker.tls.problems import TlsProblem
from logyard.broker.tls.stores import KeyStore, ReadFile, TrustStore

_STEPS_MAX = 20


@dataclass(frozen=True, slots=True)
class Material:
    """What a listener's stores hold, and the contexts made of it; `client` for connections to other brokers.

    `is_checked`: it is the listener between brokers, on which this broker has to be able to connect to itself. Kafka
    does not ask that of the control plane's listener.
    """

    keys: KeyStore | None
    trust: TrustStore | None
    server: ssl.SSLContext
    client: ssl.SSLContext | None
    is_checked: bool


def read_material(settings: ListenerSettings, read: ReadFile, *, connects: bool, is_checked: bool) -> Material:
    """Read the stores; `connects`: this broker connects to others on the listener.

    Raises TlsProblem: also if `is_checked` and this broker could not connect to itself on the listener.
    """
    keys, trust = read_stores(settings, read)
    client = client_context(settings, keys, trust) if connects else None
    material = Material(keys, trust, server_context(settings, keys, trust), client, is_checked)
    if is_checked:
        _shake_hands(settings, material, material)
    return material


def renewed(settings: ListenerSettings, read: ReadFile, old: Material) -> Material | None:
    """Return what the stores hold now, None if it is the same. Raises TlsProblem if it may not take its place."""
    keys, trust = read_stores(settings, read)
    if keys == old.keys and trust == old.trust:
        return None
    new = read_material(settings, read, connects=old.client is not None, is_checked=old.is_checked)
    if old.trust is None and new.trust is not None:
        raise _refused(settings, "ssl.truststore.location", "a trust store cannot be added to a running listener")
    if old.keys is not None and new.keys is not None:
        _check_names(settings, old.keys, new.keys)
    if old.is_checked:
        _shake_hands(settings, old, new)
        _shake_hands(settings, new, old)
    return new


def _check_names(settings: ListenerSettings, old: KeyStore, new: KeyStore) -> None:
    (old_subject, old_names), (new_subject, new_names) = old.names, new.names
    if old_subject != new_subject and not settings.bool("ssl.allow.dn.changes"):
        raise _refused(
            settings,
            "ssl.keystore.location",
            "the new certificate has another distinguished name (allowed by ssl.allow.dn.changes)",
        )
    missing = sorted(text for _, text in old_names - new_names)
    if missing and not settings.bool("ssl.allow.san.changes"):
        raise _refused(
            settings,
            "ssl.keystore.location",
            f"the new certificate lacks the alternative names {', '.join(missing)} (allowed by ssl.allow.san.changes)",
        )


def _shake_hands(settings: ListenerSettings, server: Material, client: Material) -> None:
    """Check in memory that `client` can connect to `server`; host names are not checked, as in Kafka."""
    unnamed = client_context(settings, client.keys, client.trust, checks_names=False)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    waiting = [
        unnamed.wrap_bio(to_client, to_server),
        server.server.wrap_bio(to_server, to_client, server_side=True),
    ]
    try:
        for _ in range(_STEPS_MAX):
            waiting = [side for side in waiting if not _step(side)]
            if not waiting:
                return
    except ssl.SSLError as error:
        why = getattr(error, "verify_message", None) or (error.reason or "unknown").lower().replace("_", " ")
        raise _refused(
            settings, "ssl.truststore.location", f"brokers could not connect to each other on this listener ({why})"
        ) from None
    raise _refused(settings, "ssl.keystore.location", "a handshake of brokers does not come to its end")


def _step(side: ssl.SSLObject) -> bool:
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def _refused(settings: ListenerSettings, key: str, why: str) -> TlsProblem:
    return TlsProblem(f"{settings.name_of(key)}: {why}")

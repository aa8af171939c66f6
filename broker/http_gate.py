"""Who may use the HTTP side of this broker: log-ins and rights as at its listeners, or the token of a file.

It connects `http`, which knows requests, with `server`, which has the mechanisms and the authorizer.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from logyard.broker.client.http_get import HttpLogin
from logyard.broker.config import http_side
from logyard.broker.config.broker import BrokerConfig, ConfigProblems
from logyard.broker.config.listener_settings import ListenerSettings
from logyard.broker.environment import Environment
from logyard.broker.http import token
from logyard.broker.http.access import Access, Endpoint, everything
from logyard.broker.http.callers import Caller, Decide
from logyard.broker.http.identities import LoggedIn, LoginMeans, OwnerOfTheFile
from logyard.broker.http.rights_table import OPEN_WHEN_PLAIN, Route
from logyard.broker.http.run_file import RunFile
from logyard.broker.http.run_routes import keeping, run_routes
from logyard.broker.http.run_tokens import RunTokens
from logyard.broker.leases.book import LeaseBook
from logyard.broker.security.passwords import Passwords
from logyard.broker.security.sasl import mechanism as names
from logyard.broker.security.sasl.login_modules import own_login
from logyard.broker.server import addresses
from logyard.broker.server.logins.failures import LoginFailures
from logyard.broker.server.logins.mechanisms import CredentialSources, Mechanisms, mechanisms_of
from logyard.broker.server.request import Session
from logyard.broker.server.rights import Operation, Resource, Rights
from logyard.broker.server.services import Services
from logyard.broker.tls.listeners import TlsListeners

SCRAM = (names.SCRAM_SHA_256, names.SCRAM_SHA_512)


@dataclass(frozen=True, slots=True)
class Gate:
    """What stands before the routes, and the routes that belong to it."""

    access: Access
    routes: Sequence[tuple[Route, Endpoint]] = ()


def gate_of(
    config: BrokerConfig,
    environment: Environment,
    sources: CredentialSources,
    services: Services,
    book: LeaseBook,
) -> Gate:
    """Return the gate that the settings ask for. Raises LogyardError if its log-ins cannot be used."""
    listener = http_side.shared(config)
    if listener is None:
        return _plain(config, book)
    return _secured(config, listener, environment, sources, services, book)


def _plain(config: BrokerConfig, book: LeaseBook) -> Gate:
    """Return the gate of an HTTP side without TLS: the token of `http.token.file`, or of `http.token`.

    Raises LogyardError where `http.token.file` has no token.
    """
    path = config.optional_str("http.token.file")
    secret = token.load(path) if path is not None else token.load_or_create(config.log_dirs[0])
    return Gate(Access(OwnerOfTheFile(secret), everything, book, open_routes=OPEN_WHEN_PLAIN))


def _secured(
    config: BrokerConfig,
    listener: ListenerSettings,
    environment: Environment,
    sources: CredentialSources,
    services: Services,
    book: LeaseBook,
) -> Gate:
    """Return the gate of an HTTP side with the log-ins of a listener. Raises ConfigProblems."""
    run_blocking = environment.run_login_work or environment.run_blocking
    mechanisms = mechanisms_of(listener, sources) if listener.protocol == "SASL_SSL" else Mechanisms({}, {})
    runs = RunTokens(environment.clock, secrets.token_bytes)
    file = RunFile(config.log_dirs[0], runs, environment.run_blocking)
    file.load()
    enabled = mechanisms.names
    means = LoginMeans(
        Passwords(
            partial(mechanisms.exchange, names.PLAIN) if names.PLAIN in enabled else None,
            {name: partial(sources.users.scram, name) for name in SCRAM if name in enabled},
        ),
        partial(mechanisms.exchange, names.OAUTHBEARER) if names.OAUTHBEARER in enabled else None,
        runs,
        run_blocking,
        config.int("connection.failed.authentication.delay.ms") / 1000,
    )
    identities = LoggedIn(means, LoginFailures(environment.clock.monotonic), services.login_counters)
    is_open = frozenset({Route("GET", "/metrics")} if config.bool("http.metrics.open") else ())
    access = Access(identities, decide_by(services.rights), book, open_routes=is_open, in_use=keeping(runs, file))
    return Gate(access, run_routes(runs, file))


def login_at_others(config: BrokerConfig, tls: TlsListeners) -> HttpLogin:
    """Return how this broker asks others' HTTP sides: with its certificate, or the password it has for other brokers.

    GSSAPI and OAUTHBEARER have no password: then others refuse. Raises ConfigProblems.
    """
    listener, mechanism = (
        config.listener(config.inter_broker_listener),
        config.str("sasl.mechanism.inter.broker.protocol"),
    )
    if listener.protocol not in ("SASL_PLAINTEXT", "SASL_SSL") or mechanism not in (names.PLAIN, *SCRAM):
        return HttpLogin(tls.http_client)
    try:
        user, password = own_login(listener, mechanism) or (None, None)
    except ValueError as error:
        raise ConfigProblems([str(error)]) from None
    return HttpLogin(tls.http_client, user, password)


def decide_by(rights: Rights) -> Decide:
    """Return the broker's authorizer for requests of HTTP, with its audit log."""

    def decide(caller: Caller, operation: Operation, resource: Resource, name: str, route: str, *, tells: bool) -> bool:
        session = Session(0, "HTTP", addresses.as_java(caller.host), caller.principal)
        return rights.allow(session, operation, resource, name, route, 1 if tells else 0)

    return decide

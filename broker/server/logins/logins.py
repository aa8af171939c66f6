"""The log-ins of a broker's SASL listeners: one set of rules for each listener, made from its settings."""

from collections.abc import Callable, Mapping
from functools import partial

from logyard.broker.clock import Clock
from logyard.broker.config.broker import BrokerConfig
from logyard.broker.event_loop import RunBlocking
from logyard.broker.server.dispatch import Dispatcher
from logyard.broker.server.logins.failures import LoginCounters, LoginFailures
from logyard.broker.server.logins.login import Login, LoginConnection, LoginRules
from logyard.broker.server.logins.mechanisms import CredentialSources, mechanisms_of

SASL_PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")

BeginLogin = Callable[[LoginConnection], None]
"""Has a new connection log in before it is served."""


def logins_of(
    config: BrokerConfig,
    sources: CredentialSources,
    dispatcher: Dispatcher,
    run_blocking: RunBlocking,
    clock: Clock,
    counters: LoginCounters,
) -> Mapping[str, BeginLogin]:
    """Return what begins a log-in, by the name of the listener; listeners without SASL have nothing.

    Raises ConfigProblems.
    """
    failures = LoginFailures(clock.monotonic)
    begin: dict[str, BeginLogin] = {}
    for endpoint in config.listeners:
        if endpoint.protocol not in SASL_PROTOCOLS:
            continue
        listener = config.listener(endpoint.listener)
        rules = LoginRules(
            mechanisms=mechanisms_of(listener, sources),
            dispatcher=dispatcher,
            failures=failures,
            run_blocking=run_blocking,
            now_ms=sources.now_ms,
            delay_s=config.int("connection.failed.authentication.delay.ms") / 1000,
            token_bytes_max=listener.int("sasl.server.max.receive.size"),
            frame_bytes_max=config.int("socket.request.max.bytes"),
            counters=counters,
        )
        begin[endpoint.listener] = partial(Login.begin, rules)
    return begin

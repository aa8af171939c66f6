"""The SASL mechanisms of one listener, made from its settings (facts §18.1)."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import structlog

from logyard.broker.config.broker import ConfigProblems
from logyard.broker.config.listener_keys import of_mechanism
from logyard.broker.config.listener_settings import ListenerSettings
from logyard.broker.metadata.user_credentials import UserCredentials
from logyard.broker.security.sasl import jaas
from logyard.broker.security.sasl import mechanism as names
from logyard.broker.security.sasl.bearer_tokens import TokenValidator
from logyard.broker.security.sasl.gssapi import GssapiServer
from logyard.broker.security.sasl.jwks_tokens import JwksTokens, TokenRules
from logyard.broker.security.sasl.kerberos_names import KerberosNames
from logyard.broker.security.sasl.login_modules import JAAS, MODULES, NONCE_BYTES, kerberos_of, login_module
from logyard.broker.security.sasl.mechanism import ServerExchange
from logyard.broker.security.sasl.oauthbearer import OAuthBearerServer
from logyard.broker.security.sasl.plain import PlainServer
from logyard.broker.security.sasl.scram import ScramLookup, ScramServer, TokenCredential
from logyard.broker.security.sasl.unsecured_jws import UnsecuredRules, UnsecuredTokens
from logyard.broker.security.signing_keys import JwksSettings, SigningKeys

CALLBACK = "sasl.server.callback.handler.class"
_USER_PREFIX = "user_"
_KERBEROS_RULES = "sasl.kerberos.principal.to.local.rules"
_UNSECURED, _JWKS = "OAuthBearerUnsecuredValidatorCallbackHandler", "OAuthBearerValidatorCallbackHandler"

log = structlog.get_logger("logyard.login")

NewExchange = Callable[[], ServerExchange]


@dataclass(frozen=True, slots=True)
class CredentialSources:
    """Where mechanisms find what they compare with. `now_ms` is the wall clock, as in tokens."""

    users: UserCredentials
    now_ms: Callable[[], int]
    of_token: Callable[[str, str], TokenCredential | None]
    """(mechanism, id) → a delegation token's credential."""
    open_keys: Callable[[JwksSettings], SigningKeys]


class Mechanisms:
    """A listener's enabled mechanisms."""

    def __init__(self, exchanges: Mapping[str, NewExchange], reauth_ms: Mapping[str, int]) -> None:
        self._exchanges = exchanges
        self._reauth_ms = reauth_ms

    @property
    def names(self) -> Sequence[str]:
        return list(self._exchanges)

    def exchange(self, mechanism: str) -> ServerExchange:
        """Begin a log-in. Raises KeyError if the mechanism is not enabled."""
        return self._exchanges[mechanism]()

    def reauth_ms(self, mechanism: str) -> int:
        """Return `connections.max.reauth.ms` of a mechanism; 0 or less: no limit."""
        return self._reauth_ms[mechanism]


def mechanisms_of(listener: ListenerSettings, sources: CredentialSources) -> Mechanisms:
    """Make a listener's mechanisms. Raises ConfigProblems, whose lines have no secret."""
    enabled = listener.list("sasl.enabled.mechanisms")
    problems: list[str] = []
    exchanges: dict[str, NewExchange] = {}
    if not enabled:
        problems.append(f"{listener.name_of('sasl.enabled.mechanisms')}: at least one mechanism is expected")
    for mechanism in enabled:
        try:
            exchanges[mechanism] = _exchange(listener, mechanism, sources)
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise ConfigProblems(problems)
    reauth = {name: listener.of_mechanism(name).int("connections.max.reauth.ms") for name in exchanges}
    return Mechanisms(exchanges, reauth)


def _exchange(listener: ListenerSettings, mechanism: str, sources: CredentialSources) -> NewExchange:
    if mechanism not in MODULES:
        known = ", ".join(MODULES)
        raise ValueError(f"{listener.name_of('sasl.enabled.mechanisms')}: {mechanism} is none of {known}")
    module = login_module(listener, mechanism)
    callback = listener.of_mechanism(mechanism).optional_str(CALLBACK)
    if mechanism == names.OAUTHBEARER:
        return partial(OAuthBearerServer, _validator(listener, module, callback, sources))
    if callback is not None:
        raise ValueError(
            f"{of_mechanism(listener.name, mechanism, CALLBACK)}: classes of Java cannot be loaded; leave it out"
        )
    match mechanism:
        case names.PLAIN:
            return _plain(listener, module)
        case names.SCRAM_SHA_256 | names.SCRAM_SHA_512:
            lookup = ScramLookup(
                partial(sources.users.scram, mechanism), lambda token_id: sources.of_token(mechanism, token_id)
            )
            return partial(ScramServer, mechanism, lookup, partial(secrets.token_urlsafe, NONCE_BYTES))
    return _kerberos(listener)


def _kerberos(listener: ListenerSettings) -> NewExchange:
    principal, _ = kerberos_of(listener)
    rules = listener.of_mechanism(names.GSSAPI).list(_KERBEROS_RULES)
    try:
        users = KerberosNames(rules, principal.default_realm())
    except ValueError as error:
        raise ValueError(f"{listener.name_of(_KERBEROS_RULES)}: {error}") from None
    return partial(GssapiServer, principal.acceptor, users)


def _plain(listener: ListenerSettings, module: jaas.LoginModule | None) -> NewExchange:
    if module is None:
        raise ValueError(
            f"{of_mechanism(listener.name, names.PLAIN, JAAS)}: not set; "
            'org.apache.kafka.common.security.plain.PlainLoginModule required user_NAME="password"; is expected'
        )
    passwords = {
        option.removeprefix(_USER_PREFIX): password
        for option, password in module.options.items()
        if option.startswith(_USER_PREFIX)
    }
    return partial(PlainServer, passwords.get)


def _validator(
    listener: ListenerSettings, module: jaas.LoginModule | None, callback: str | None, sources: CredentialSources
) -> TokenValidator:
    handler = (callback or _UNSECURED).rpartition(".")[2]
    if handler == _UNSECURED:
        log.warning("tokens without a signature are accepted: set a handler with keys", listener=listener.name)
        return UnsecuredTokens(UnsecuredRules.from_options({} if module is None else module.options), sources.now_ms)
    if handler == _JWKS:
        return _signed(listener, sources)
    key = of_mechanism(listener.name, names.OAUTHBEARER, CALLBACK)
    raise ValueError(f"{key}: {_JWKS} or {_UNSECURED} is expected, not {callback}")


def _signed(listener: ListenerSettings, sources: CredentialSources) -> TokenValidator:
    settings = listener.of_mechanism(names.OAUTHBEARER)
    url = settings.optional_str("sasl.oauthbearer.jwks.endpoint.url")
    if url is None:
        raise ValueError(f"{listener.name_of('sasl.oauthbearer.jwks.endpoint.url')}: not set")
    keys = sources.open_keys(
        JwksSettings(
            url,
            settings.int("sasl.oauthbearer.jwks.endpoint.refresh.ms") / 1000,
            settings.int("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms") / 1000,
            settings.int("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms") / 1000,
        )
    )
    rules = TokenRules(
        settings.list("sasl.oauthbearer.expected.audience"),
        settings.optional_str("sasl.oauthbearer.expected.issuer"),
        settings.int("sasl.oauthbearer.clock.skew.seconds"),
        settings.str("sasl.oauthbearer.sub.claim.name"),
    )
    return JwksTokens(rules, keys.keys, keys.unknown)

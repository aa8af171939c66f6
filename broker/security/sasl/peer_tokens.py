"""How a broker gets the tokens for its log-in to others (OAUTHBEARER), from a listener's settings (facts §18.3)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from logyard.broker.config.listener_keys import of_mechanism
from logyard.broker.config.listener_settings import ListenerSettings
from logyard.broker.config.typed_values import TypedValues
from logyard.broker.security.sasl.jaas import LoginModule
from logyard.broker.security.sasl.login_tokens import (
    Endpoint,
    LoginTokens,
    RefreshRules,
    UnsecuredLogin,
    file_of,
    from_file,
)
from logyard.broker.security.sasl.mechanism import OAUTHBEARER
from logyard.broker.security.sasl.oauthbearer import OAuthBearerClient

HANDLER = "sasl.login.callback.handler.class"
URL = "sasl.oauthbearer.token.endpoint.url"
_UNSECURED, _SIGNED = "OAuthBearerUnsecuredLoginCallbackHandler", "OAuthBearerLoginCallbackHandler"
# Options that are sent with the token, by their prefix (KIP-342).
_EXTENSIONS: Final = {_UNSECURED: "unsecuredLoginExtension_", _SIGNED: "extension_"}
TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class PeerTokens:
    """The tokens, and the extensions that are sent with them."""

    tokens: LoginTokens
    extensions: Mapping[str, str]

    def client(self) -> OAuthBearerClient:
        """Begin a log-in."""
        return OAuthBearerClient(self.tokens.token, self.extensions)


def peer_tokens(listener: ListenerSettings, module: LoginModule | None, now_ms: Callable[[], int]) -> PeerTokens:
    """Return where this broker's tokens come from; `now_ms` is the wall clock. Raises ValueError, without a secret."""
    settings = listener.of_mechanism(OAUTHBEARER)
    options: Mapping[str, str] = {} if module is None else module.options
    handler = (settings.optional_str(HANDLER) or _UNSECURED).rpartition(".")[2]
    if handler not in _EXTENSIONS:
        key = of_mechanism(listener.name, OAUTHBEARER, HANDLER)
        raise ValueError(f"{key}: {_SIGNED} or {_UNSECURED} is expected: classes of Java cannot be loaded")
    prefix = _EXTENSIONS[handler]
    extensions = {name.removeprefix(prefix): text for name, text in options.items() if name.startswith(prefix)}
    if handler == _UNSECURED:
        made = UnsecuredLogin(options, now_ms)
        fetch, subject_claim = made.fetch, made.subject_claim
    else:
        fetch, subject_claim = _fetch(listener, settings, options), settings.str("sasl.oauthbearer.sub.claim.name")
    return PeerTokens(LoginTokens(fetch, _rules(settings), subject_claim, now_ms), extensions)


def _fetch(listener: ListenerSettings, settings: TypedValues, options: Mapping[str, str]) -> Callable[[], str]:
    url = settings.optional_str(URL)
    scheme = urlsplit(url or "").scheme
    if url is None or scheme not in ("https", "http", "file"):
        raise ValueError(f"{listener.name_of(URL)}: an https, http or file URL is expected, for the log-in to others")
    if scheme == "file":
        path = file_of(url)
        if not path.is_file():
            raise ValueError(f"{listener.name_of(URL)}: there is no file {path}")
        return partial(from_file, path)
    for name in ("clientId", "clientSecret"):
        if not options.get(name):
            raise ValueError(f"{of_mechanism(listener.name, OAUTHBEARER, 'sasl.jaas.config')}: {name} is expected")
    return Endpoint(
        url,
        options["clientId"],
        options["clientSecret"],
        options.get("scope", "").strip(),
        settings.bool("sasl.oauthbearer.header.urlencode"),
        _seconds(settings.value("sasl.login.connect.timeout.ms")),
        _seconds(settings.value("sasl.login.read.timeout.ms")),
    ).fetch


def _seconds(ms: object) -> float:
    """Return a time-out; Kafka's default is none at all, which would keep a thread for ever."""
    return ms / 1000 if isinstance(ms, int) and ms > 0 else TIMEOUT_S


def _rules(settings: TypedValues) -> RefreshRules:
    return RefreshRules(
        settings.float("sasl.login.refresh.window.factor"),
        settings.float("sasl.login.refresh.window.jitter"),
        settings.int("sasl.login.refresh.min.period.seconds"),
        settings.int("sasl.login.refresh.buffer.seconds"),
    )

"""The options with which kafka-python's clients log in, and what its SCRAM lacks: tokens, and odd user names."""

from importlib.util import find_spec
from typing import Any

from logyard.login import oauth, tls
from logyard.login.security import GSSAPI, OAUTHBEARER, PASSWORDS, BadSettings, Security


class TokenId(str):
    """The user name of a login by delegation token; the SCRAM exchange then carries `tokenauth=true` (facts §18)."""

    __slots__ = ()


def options(security: Security) -> dict[str, Any]:
    """Options of KafkaAdminClient and its kind. Contains secrets. Raises BadSettings; NoToken by the token endpoint."""
    made: dict[str, Any] = {"security_protocol": security.security_protocol}
    if security.uses_tls:
        made["ssl_context"] = tls.context(security)
        # kafka-python looks at the context alone.
        made["ssl_check_hostname"] = security.ssl_check_hostname
    if not security.uses_sasl:
        return made
    mechanism = security.sasl_mechanism
    made["sasl_mechanism"] = mechanism
    if mechanism in PASSWORDS:
        _mend_scram()
        name = security.username or ""
        made["sasl_plain_username"] = TokenId(name) if security.delegation_token else name
        made["sasl_plain_password"] = security.password or ""
    elif mechanism == OAUTHBEARER:
        made["sasl_oauth_token_provider"] = _provider(security)
    elif mechanism == GSSAPI:
        if find_spec("gssapi") is None:
            raise BadSettings("sasl_mechanism GSSAPI needs the package gssapi: pip install gssapi")
        made["sasl_kerberos_service_name"] = security.kerberos_service
    return made


def _provider(security: Security) -> Any:
    from kafka.net.sasl.oauth import AbstractTokenProvider

    source = oauth.TokenSource(security)
    source.token()  # a refusal is told here by its name; within a client it would be a failed login

    class Provider(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
        def token(self) -> str:
            return source.token()

    return Provider()


def _mend_scram() -> None:
    """Have kafka-python send `=2C` and `=3D` in user names (RFC 5802), and the extension of delegation tokens.

    Its registry belongs to the process: for other users' names nothing changes.
    """
    from kafka.net import sasl
    from kafka.net.sasl.scram import SaslMechanismScram, ScramClient

    if sasl.get_sasl_mechanism("SCRAM-SHA-512") is not SaslMechanismScram:
        return

    class Client(ScramClient):  # type: ignore[misc]  # kafka-python has no types
        def __init__(self, user: str, password: str, mechanism: str) -> None:
            super().__init__(user.replace("=", "=3D").replace(",", "=2C"), password, mechanism)
            self._is_token = isinstance(user, TokenId)

        def first_message(self) -> bytes:
            extension = b",tokenauth=true" if self._is_token else b""
            first: bytes = super().first_message() + extension
            self.auth_message += extension  # what both sides sign
            return first

    class Scram(SaslMechanismScram):  # type: ignore[misc]  # kafka-python has no types
        def __init__(self, **config: Any) -> None:
            super().__init__(**config)
            login = config["sasl_plain_username"], config["sasl_plain_password"], config["sasl_mechanism"]
            self._scram_client = Client(*login)

    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        sasl.register_sasl_mechanism(mechanism, Scram, overwrite=True)

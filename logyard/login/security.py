"""How a client reaches a secured cluster: protocol, TLS, login. Pure; the same for commands, Airflow and Spark.

Settings come under three families of names, and may be mixed: our own (`security_protocol`, `ssl_cafile` …),
librdkafka's (`security.protocol`, `ssl.ca.location` …) and those of Kafka's Java clients (`sasl.jaas.config`,
`ssl.truststore.location` …); `names.py` translates the latter two.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from logyard.broker.errors import LogyardError
from logyard.login import names

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTHBEARER, GSSAPI = "OAUTHBEARER", "GSSAPI"
MECHANISMS = (*PASSWORDS, OAUTHBEARER, GSSAPI)
# A repr never shows these, and no log or message may.
SECRETS = (
    "password",
    "ssl_password",
    "ssl_key",
    "ssl_ca_password",
    "oauth_client_secret",
    "oauth_token",
    "http_password",
)


class BadSettings(LogyardError):
    """A connection's setting is missing or invalid; the text names the key and what is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """Everything that a client needs to log in.

    `ssl_cafile`: PEM, or PKCS12 with `ssl_ca_password`. `ssl_certfile` and `ssl_keyfile`: PEM files, or one PEM or
    PKCS12 file for both, with `ssl_password`. `ssl_ca`, `ssl_certificate` and `ssl_key`: the PEM text itself.
    `http_username`, `http_password`, `http_cafile`: for the brokers' HTTP side, if it has other users or another
    authority. `delegation_token`: `username` and `password` are a delegation token's id and HMAC (by SCRAM).
    """

    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    delegation_token: bool = False
    ssl_cafile: str | None = None
    ssl_ca: str | None = field(default=None, repr=False)
    ssl_ca_password: str | None = field(default=None, repr=False)
    ssl_certfile: str | None = None
    ssl_certificate: str | None = field(default=None, repr=False)
    ssl_keyfile: str | None = None
    ssl_key: str | None = field(default=None, repr=False)
    ssl_password: str | None = field(default=None, repr=False)
    ssl_check_hostname: bool = True
    ssl_check_certificate: bool = True
    oauth_token_url: str | None = None
    oauth_client_id: str | None = None
    oauth_client_secret: str | None = field(default=None, repr=False)
    oauth_scope: str | None = None
    oauth_token: str | None = field(default=None, repr=False)
    oauth_cafile: str | None = None
    kerberos_service: str = "kafka"
    http_username: str | None = None
    http_password: str | None = field(default=None, repr=False)
    http_cafile: str | None = None

    @property
    def uses_tls(self) -> bool:
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.security_protocol.startswith("SASL")

    @property
    def user(self) -> str:
        """Who logs in, for messages."""
        if not self.uses_sasl:
            return "the certificate's user" if self.ssl_certfile or self.ssl_certificate else "ANONYMOUS"
        return repr(self.username or self.oauth_client_id or self.sasl_mechanism)

    def secrets(self) -> list[str]:
        """The secrets that are set."""
        return [value for name in SECRETS if (value := getattr(self, name))]


def read(given: Mapping[str, Any], *, username: str | None = None, password: str | None = None) -> dict[str, Any]:
    """The fields of Security in these settings, checked; empty values count as absent, other keys are ignored.

    `username` and `password` are a connection's own; where the settings have them too, the connection's count.
    Raises BadSettings, never with a secret.
    """
    try:
        told = names.translate({key: value for key, value in given.items() if value not in (None, "", [], ())})
    except ValueError as problem:
        raise BadSettings(str(problem)) from None
    if username:
        told["username"] = username
    if password:
        told["password"] = password
    protocol = str(told.get("security_protocol", "PLAINTEXT")).upper()
    if protocol not in PROTOCOLS:
        raise BadSettings(f"security_protocol {protocol!r}: one of {', '.join(PROTOCOLS)} is expected")
    found: dict[str, Any] = {"security_protocol": protocol}
    for one in fields(Security):
        if one.name in told and one.name != "security_protocol":
            value = told[one.name]
            found[one.name] = truth(one.name, value) if isinstance(one.default, bool) else str(value)
    if protocol.startswith("SASL"):
        found["sasl_mechanism"] = _mechanism(found)
    return found


def of(given: Mapping[str, Any], *, username: str | None = None, password: str | None = None) -> Security:
    """As `read`, as one value."""
    return Security(**read(given, username=username, password=password))


def truth(key: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    raise BadSettings(f"{key} {value!r}: true or false is expected")


def _mechanism(found: Mapping[str, Any]) -> str:
    """The mechanism, if what it needs is there. Raises BadSettings."""
    mechanism = str(found.get("sasl_mechanism", "")).upper() or None
    if mechanism not in MECHANISMS:
        raise BadSettings(f"sasl_mechanism {mechanism!r}: one of {', '.join(MECHANISMS)} is expected")
    if mechanism == OAUTHBEARER and "oauth_token" not in found:
        missing = [name for name in ("oauth_token_url", "oauth_client_id", "oauth_client_secret") if name not in found]
        if missing:
            raise BadSettings(f"sasl_mechanism OAUTHBEARER: {', '.join(missing)} missing (or give oauth_token)")
    if found.get("delegation_token") and not mechanism.startswith("SCRAM"):
        raise BadSettings(f"delegation_token: by SCRAM-SHA-256 or SCRAM-SHA-512, not {mechanism}")
    return mechanism

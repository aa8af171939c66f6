"""How a client logs in to a broker's HTTP side: with the log-in of Kafka's protocol, unless settings for HTTP say else.

A password or token is only for an address that begins with https.
"""

import http.client
import re
import ssl
from base64 import b64encode
from dataclasses import dataclass, field, replace

from logyard.login import tls
from logyard.login.oauth import TokenSource
from logyard.login.security import OAUTHBEARER, PASSWORDS, BadSettings, Security

HTTPS = "https://"
_PATIENCE_S = 5.0
_SHOWN = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True)
class Trust:
    """Whom a client trusts: authorities as PEM text (None: the system's). It has no secret: tasks may have it."""

    authorities: str | None = field(default=None, repr=False)
    check_hostname: bool = True
    check_certificate: bool = True

    def context(self) -> ssl.SSLContext:
        """A context without a client certificate."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        tls.trust_each(made)
        made.check_hostname = self.check_hostname and self.check_certificate
        if not self.check_certificate:
            made.verify_mode = ssl.CERT_NONE
        if self.authorities is None:
            made.load_default_certs()
        else:
            made.load_verify_locations(cadata=self.authorities)
        return made


@dataclass(frozen=True, slots=True)
class HttpLogin:
    """A user of the HTTP side: whom it trusts, and what it shows."""

    trust: Trust
    context: ssl.SSLContext = field(repr=False)
    authorization: str | None = field(default=None, repr=False)
    has_certificate: bool = False

    @property
    def is_somebody(self) -> bool:
        return self.authorization is not None or self.has_certificate


def of(security: Security) -> HttpLogin:
    """The log-in with these settings. Raises BadSettings, NoToken."""
    own = security
    if security.http_cafile is not None:
        own = replace(security, ssl_cafile=security.http_cafile, ssl_ca=None)
    context = tls.context(own)
    trust = Trust(tls.authorities(own), own.ssl_check_hostname, own.ssl_check_certificate)
    has_certificate = bool(own.ssl_certfile or own.ssl_certificate)
    return HttpLogin(trust, context, _authorization(security), has_certificate)


def _authorization(security: Security) -> str | None:
    user, password = security.http_username, security.http_password
    if user is None and security.uses_sasl and not security.delegation_token:
        if security.sasl_mechanism == OAUTHBEARER:
            return f"Bearer {_header(TokenSource(security).token())}"
        if security.sasl_mechanism in PASSWORDS:
            user, password = security.username, security.password
    if user is None:
        return None
    if password is None:
        raise BadSettings("http_username is given without http_password")
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


def _header(token: str) -> str:
    """A token that HTTP can carry. Else the library's error would show it."""
    if not _SHOWN.fullmatch(token):
        raise BadSettings("oauth_token: it has blanks, line breaks or other characters that no token has")
    return token


def failing_step(address: str, login: HttpLogin) -> str:
    """Ask a secured HTTP side as this user; returns the step that fails (address, TLS, log-in), "" if none does."""
    host, _, port = address.removeprefix(HTTPS).rstrip("/").rpartition(":")
    connection = http.client.HTTPSConnection(host.strip("[]"), int(port), timeout=_PATIENCE_S, context=login.context)
    try:
        connection.connect()
        shown = {"Authorization": login.authorization} if login.authorization is not None else {}
        connection.request("GET", "/leases", headers=shown)
        status = connection.getresponse().status
    except ssl.SSLError as problem:
        return f"TLS ({address}): {advice(problem)}"
    except (OSError, http.client.HTTPException) as problem:
        return f"address ({address}): {problem or type(problem).__name__}: is http.advertised.listener right?"
    finally:
        connection.close()
    if status in (401, 429):
        who = "nobody is named" if login.authorization is None else "user or password is refused"
        return f"log-in ({address}): {who}: give http_username and http_password, or the SASL user's"
    return "" if status == 200 else f"log-in ({address}): status {status}"


def advice(problem: OSError) -> str:
    """What is wrong with a TLS connection to the HTTP side, in one line that says what to do."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        if problem.verify_code in (62, 64):  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
            return (
                f"{problem.verify_message}: set the broker's http.advertised.listener to a name in its certificate, or "
                "ssl_check_hostname=false"
            )
        if problem.verify_code == 10:
            return f"{problem.verify_message}: the broker needs a new certificate"
        why = problem.verify_message
        return f"its certificate is not trusted ({why}): give its authority as http_cafile or ssl_cafile"
    if isinstance(problem, ssl.SSLError):
        return f"TLS failed ({(problem.reason or 'no reason given').lower().replace('_', ' ')})"
    return str(problem) or type(problem).__name__

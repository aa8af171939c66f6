"""The options with which librdkafka's clients log in."""

from logyard.login import tls
from logyard.login.security import GSSAPI, OAUTHBEARER, Security


def options(security: Security) -> dict[str, str]:
    """librdkafka's settings, without those that are not set. Contains secrets. Raises BadSettings: a file's content.

    Files and texts may have every form that other clients take (tls.py); librdkafka takes fewer.
    """
    told: dict[str, str | None] = {"security.protocol": security.security_protocol}
    if security.uses_tls:
        told |= _tls(security)
    if security.uses_sasl:
        told["sasl.mechanisms"] = security.sasl_mechanism
        if security.sasl_mechanism == OAUTHBEARER:
            told |= {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": security.oauth_client_id,
                "sasl.oauthbearer.client.secret": security.oauth_client_secret,
                "sasl.oauthbearer.token.endpoint.url": security.oauth_token_url,
                "sasl.oauthbearer.scope": security.oauth_scope,
                "https.ca.location": security.oauth_cafile,
            }
        elif security.sasl_mechanism == GSSAPI:
            told["sasl.kerberos.service.name"] = security.kerberos_service
        else:
            told |= {"sasl.username": security.username, "sasl.password": security.password}
    return {key: value for key, value in told.items() if value is not None}


def _tls(security: Security) -> dict[str, str | None]:
    told: dict[str, str | None] = {
        "ssl.certificate.pem": _text(security.ssl_certificate),
        "ssl.key.pem": _text(security.ssl_key),
        "ssl.key.password": security.ssl_password,
    }
    place = security.ssl_cafile
    if security.ssl_ca is None and place is not None and not tls.is_pkcs12("ssl_cafile", place):
        told["ssl.ca.location"] = place
    else:
        told["ssl.ca.pem"] = tls.authorities(security)
    if security.ssl_certfile is not None and tls.is_pkcs12("ssl_certfile", security.ssl_certfile):
        told["ssl.keystore.location"], told["ssl.keystore.password"] = security.ssl_certfile, security.ssl_password
        told["ssl.key.password"] = None
    elif security.ssl_certfile is not None:
        told["ssl.certificate.location"] = security.ssl_certfile
        told["ssl.key.location"] = security.ssl_keyfile or security.ssl_certfile
    if not security.ssl_check_hostname:
        told["ssl.endpoint.identification.algorithm"] = "none"
    if not security.ssl_check_certificate:
        told["enable.ssl.certificate.verification"] = "false"
    return told


def _text(given: str | None) -> str | None:
    return None if given is None else tls.text(given)

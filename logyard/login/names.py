"""librdkafka's and Kafka's own names of security settings, translated into ours. Pure.

The names of librdkafka are those that the connections of Airflow's provider for Apache Kafka carry, so that such a
connection works here too.
"""

from collections.abc import Mapping
from typing import Any

from logyard.login import jaas

_SAME = {
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "username",
    "sasl.password": "password",
    "ssl.key.password": "ssl_password",
    "sasl.kerberos.service.name": "kerberos_service",
    "sasl.oauthbearer.token.endpoint.url": "oauth_token_url",
    "sasl.oauthbearer.scope": "oauth_scope",
    "sasl.oauthbearer.client.id": "oauth_client_id",
    "sasl.oauthbearer.client.secret": "oauth_client_secret",
    # librdkafka's
    "ssl.ca.location": "ssl_cafile",
    "ssl.ca.pem": "ssl_ca",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.certificate.pem": "ssl_certificate",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.pem": "ssl_key",
    "enable.ssl.certificate.verification": "ssl_check_certificate",
    "https.ca.location": "oauth_cafile",
    # Kafka's
    "ssl.truststore.location": "ssl_cafile",
    "ssl.truststore.password": "ssl_ca_password",
    "ssl.truststore.certificates": "ssl_ca",
    "ssl.keystore.certificate.chain": "ssl_certificate",
    "ssl.keystore.key": "ssl_key",
    "sasl.oauthbearer.client.credentials.client.id": "oauth_client_id",
    "sasl.oauthbearer.client.credentials.client.secret": "oauth_client_secret",
}
_HOST_NAMES = "ssl.endpoint.identification.algorithm"
_CHECKS = {"https": True, "none": False, "": False}
_STORE_TYPES = ("PEM", "PKCS12")


def translate(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with our names in place of the other families'; ours win, all other keys stay.

    Raises ValueError with what cannot be used, never with a secret.
    """
    found = {_SAME[key]: value for key, value in given.items() if key in _SAME}
    _stores(given, found)
    if _HOST_NAMES in given:
        said = str(given[_HOST_NAMES]).lower()
        if said not in _CHECKS:
            raise ValueError(f"{_HOST_NAMES} {said!r}: https, or nothing (none) is expected")
        found["ssl_check_hostname"] = _CHECKS[said]
    if "sasl.jaas.config" in given:
        found |= _login(str(given["sasl.jaas.config"]))
    own = {key: value for key, value in given.items() if key not in _SAME and key != "sasl.jaas.config"}
    return {**found, **own}


def _stores(given: Mapping[str, Any], found: dict[str, Any]) -> None:
    """Kafka's key and trust store. Their type is not needed to read them; one that cannot be read is refused here."""
    for store in ("truststore", "keystore"):
        key = f"ssl.{store}.type"
        # Without a type it is JKS to Kafka's clients; the file itself tells here.
        if str(given.get(key, "PEM")).upper() not in _STORE_TYPES:
            raise ValueError(
                f"{key} {given[key]} is not supported: convert the store with `keytool -importkeystore "
                "-srckeystore STORE -destkeystore STORE.p12 -deststoretype PKCS12`"
            )
    if "ssl.keystore.location" in given:
        found["ssl_certfile"] = found["ssl_keyfile"] = given["ssl.keystore.location"]
    if "ssl.keystore.password" in given and "ssl.key.password" not in given:
        found["ssl_password"] = given["ssl.keystore.password"]


def _login(text: str) -> dict[str, Any]:
    """What a line of JAAS says about the client's login."""
    entry = jaas.parse(text)
    options = {key.lower(): value for key, value in entry.options.items()}
    told = {
        "username": options.get("username"),
        "password": options.get("password"),
        "oauth_client_id": options.get("clientid"),
        "oauth_client_secret": options.get("clientsecret"),
        "oauth_scope": options.get("scope"),
        "delegation_token": options.get("tokenauth"),
        "kerberos_service": options.get("servicename"),
    }
    return {key: value for key, value in told.items() if value is not None}

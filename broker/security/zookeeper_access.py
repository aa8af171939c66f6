"""How a broker or a tool connects to ZooKeeper, from Kafka's settings `zookeeper.ssl.*` and a JAAS file (facts §18.6).

Kafka's JVM is told of the JAAS file (sasl/jaas_file.py), and of the section in it, by system properties in KAFKA_OPTS,
`-Dzookeeper.sasl.clientconfig=Client -Dzookeeper.sasl.client=true`. They are read from there too.
"""

import os
import ssl
from collections.abc import Mapping
from functools import partial
from pathlib import Path, PurePath
from typing import Final

from logyard.broker.config.broker import BrokerConfig
from logyard.broker.config.key_types import ConfigValue
from logyard.broker.config.keys import KEYS
from logyard.broker.config.listener_settings import ListenerSettings
from logyard.broker.config.properties import parse_properties
from logyard.broker.errors import LogyardError
from logyard.broker.model import Endpoint
from logyard.broker.security.sasl import jaas, jaas_file, kerberos
from logyard.broker.security.sasl.gssapi import GssapiClient
from logyard.broker.security.sasl.login_modules import MODULES
from logyard.broker.security.sasl.mechanism import GSSAPI
from logyard.broker.tls.context import client_context, read_stores
from logyard.broker.zk.access import Access, KerberosLogin, Login

JAAS_FILE = jaas_file.KEY
FILE_VARIABLE = "LOGYARD_ZK_TLS_CONFIG_FILE"
SECTION = "Client"
# The first part of ZooKeeper's principal, unless Java's property says another.
SERVICE, _SERVICE = "zookeeper", "zookeeper.sasl.client.username"
_SASL, _SASL_SECTION = "zookeeper.sasl.client", "zookeeper.sasl.clientconfig"

# A store's type by the end of its file's name, as ZooKeeper's client chooses it.
TYPES: Final[Mapping[str, str]] = {".jks": "JKS", ".p12": "PKCS12", ".pem": "PEM"}

# ZooKeeper's setting by the listener's setting that means the same.
_SAME: Final[Mapping[str, str]] = {
    "ssl.keystore.location": "zookeeper.ssl.keystore.location",
    "ssl.keystore.password": "zookeeper.ssl.keystore.password",
    "ssl.keystore.type": "zookeeper.ssl.keystore.type",
    "ssl.truststore.location": "zookeeper.ssl.truststore.location",
    "ssl.truststore.password": "zookeeper.ssl.truststore.password",
    "ssl.truststore.type": "zookeeper.ssl.truststore.type",
    "ssl.protocol": "zookeeper.ssl.protocol",
    "ssl.enabled.protocols": "zookeeper.ssl.enabled.protocols",
    "ssl.cipher.suites": "zookeeper.ssl.cipher.suites",
    "ssl.endpoint.identification.algorithm": "zookeeper.ssl.endpoint.identification.algorithm",
}

# What a tool may be told: Kafka's tools take the keys of ZooKeeper and ignore all others in the same file.
TOOL_KEYS = frozenset({*_SAME.values(), "zookeeper.ssl.client.enable", "zookeeper.clientCnxnSocket", JAAS_FILE})


class ZooKeeperTls(ListenerSettings):
    """The settings of TLS to ZooKeeper in the form of a listener's, for the modules that read stores."""

    def __init__(self, given: Mapping[str, ConfigValue]) -> None:
        values = {name: key.default for name, key in KEYS.items() if name.startswith("ssl.")}
        values |= {name: given.get(theirs) for name, theirs in _SAME.items()}
        for store in ("keystore", "truststore"):
            values[f"ssl.{store}.type"] = _type(values[f"ssl.{store}.type"], values[f"ssl.{store}.location"], store)
        if values["ssl.keystore.type"] == "PEM":
            # ZooKeeper's client has one password, for the store and the key in it.
            values["ssl.key.password"] = values["ssl.keystore.password"]
            values["ssl.keystore.password"] = None
        values["ssl.enabled.protocols"] = values["ssl.enabled.protocols"] or (str(values["ssl.protocol"]),)
        values["ssl.cipher.suites"] = values["ssl.cipher.suites"] or ()
        super().__init__(Endpoint("ZooKeeper", "SSL", "", 0), {}, values)

    def name_of(self, key: str) -> str:
        return _SAME.get(key, key)


def of_broker(config: BrokerConfig, environment: Mapping[str, str] = os.environ) -> Access:
    """Return a broker's access. Raises LogyardError, one line that names the setting, without a secret.

    zookeeper.set.acl without an identity is refused, as in Kafka.
    """
    access = _access({name: config.value(name) for name in TOOL_KEYS}, environment)
    if config.bool("zookeeper.set.acl") and not access.has_identity:
        raise LogyardError(
            "zookeeper.set.acl: the broker has no identity at ZooKeeper: set zookeeper.ssl.client.enable and "
            f"zookeeper.ssl.keystore.location, or {JAAS_FILE} with a section {SECTION}"
        )
    return access


def of_authorizer(config: BrokerConfig, environment: Mapping[str, str] = os.environ) -> Access:
    """Return the access to the ZooKeeper that has the ACLs: `authorizer.zookeeper.ssl.*` over the broker's own.

    As in Kafka the user is the broker's own, and without TLS there no setting of TLS counts. Raises LogyardError.
    """
    given = {name: config.value(name) for name in TOOL_KEYS}
    for name in TOOL_KEYS - {JAAS_FILE}:
        own = config.value(f"authorizer.{name}")
        given[name] = given[name] if own is None else own
    return _access(given, environment)


def of_tool(file: Path | None, environment: Mapping[str, str] = os.environ) -> Access:
    """Return the access of a tool: `file` is that of Kafka's option --zk-tls-config-file. Raises LogyardError.

    Without it, the variable LOGYARD_ZK_TLS_CONFIG_FILE may name the file.
    """
    if file is None and environment.get(FILE_VARIABLE):
        file = Path(environment[FILE_VARIABLE])
    if file is None:
        return of_texts({}, environment)
    try:
        return of_texts(parse_properties(file.read_text(encoding="utf-8")), environment)
    except OSError as problem:
        raise LogyardError(f"--zk-tls-config-file {file}: {problem.strerror}") from None
    except ValueError as problem:
        raise LogyardError(f"--zk-tls-config-file {file}: {problem}") from None


def of_texts(given: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> Access:
    """Return the access by settings as they are in a file; other keys do not count. Raises LogyardError, ValueError."""
    values: dict[str, ConfigValue] = {name: KEYS[name].default for name in TOOL_KEYS}
    values |= {name: KEYS[name].parse(text) for name, text in given.items() if name in TOOL_KEYS}
    return _access(values, environment)


def _access(given: Mapping[str, ConfigValue], environment: Mapping[str, str]) -> Access:
    login = _login(given.get(JAAS_FILE), environment)
    if not given["zookeeper.ssl.client.enable"]:
        return Access(login=login)
    tls = ZooKeeperTls(given)
    _context(tls)  # what is wrong with the stores is told now
    return Access(partial(_context, tls), login, tls.optional_str("ssl.keystore.location") is not None)


def _context(tls: ZooKeeperTls) -> ssl.SSLContext:
    return client_context(tls, *read_stores(tls))


def _login(file: ConfigValue, environment: Mapping[str, str]) -> Login | KerberosLogin | None:
    java = jaas_file.java_properties(environment.get(jaas_file.OPTIONS, ""))
    path = jaas_file.path_in(file, environment)
    if path is None or java.get(_SASL, "true").lower() == "false":
        return None
    section = java.get(_SASL_SECTION, SECTION)
    try:
        found = jaas_file.sections(path).get(section)
    except ValueError as problem:
        raise LogyardError(str(problem)) from None
    if not found:
        return None
    where = f"section {section} of {path}"
    if found[0].simple_name == MODULES[GSSAPI]:
        return _kerberos(found[0], java, where)
    return _digest(found[0], where)


def _digest(module: jaas.LoginModule, where: str) -> Login:
    if module.simple_name != "DigestLoginModule":
        raise LogyardError(
            f"{where}: {module.simple_name} is not supported for ZooKeeper: use DigestLoginModule, Krb5LoginModule, "
            "or a certificate"
        )
    username, password = module.options.get("username"), module.options.get("password")
    if not username or password is None:
        raise LogyardError(f"{where}: username and password are expected")
    return Login(username, password, where)


def _kerberos(module: jaas.LoginModule, java: Mapping[str, str], where: str) -> KerberosLogin:
    try:
        keytab = kerberos.keytab_of(module)
        principal = kerberos.Kerberos(keytab)
        principal.check()
    except ValueError as problem:
        raise LogyardError(f"{where}: {problem}") from None
    service = java.get(_SERVICE, SERVICE)

    def begin(host: str) -> GssapiClient:
        return GssapiClient(lambda: principal.initiator(service, host))

    return KerberosLogin(keytab.principal, begin, where)


def _type(given: ConfigValue, location: ConfigValue, store: str) -> ConfigValue:
    if given or location is None:
        return given or "JKS"
    found = TYPES.get(PurePath(str(location)).suffix.lower())
    if found is None:
        raise LogyardError(
            f"zookeeper.ssl.{store}.type: set it to PEM, PKCS12 or JKS; {location} does not end in {', '.join(TYPES)}"
        )
    return found

"""The security of a local cluster: its certificates, its users with their passwords, and the files that name them.

All of it is in the folder `security` of the cluster's directory, which only its owner can read. It is made once; later
starts use the same. Passwords are in files only, never in a command line or in what is printed.
"""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from logyard.admin.configs import znodes as user_znodes
from logyard.admin.configs.entities import USERS, Entity
from logyard.admin.zookeeper import migration
from logyard.admin.zookeeper.znodes import KazooZnodes
from logyard.broker.zk.access import ANYBODY, Access, Login
from logyard.local import files
from logyard.local.authority import Authority
from logyard.local.ports import HOST
from logyard.local.wire_login import Credentials

PROTOCOL, MECHANISM = "SASL_SSL", "SCRAM-SHA-512"
ADMIN, BROKER, AT_ZOOKEEPER = "admin", "broker", "kafka"
"""The super user of the client file, the user of brokers among themselves, the brokers' user at ZooKeeper."""

HOSTS = (HOST, "localhost")
ITERATIONS = 4096
_SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_DIGEST_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"


class ClusterSecurity:
    """The security of the cluster in `directory`. Raises LocalError where the package for certificates is missing."""

    def __init__(self, directory: Path) -> None:
        self.folder = directory / "security"
        self.client_file = directory / "client.properties"
        self.zookeeper_jaas = self.folder / "zookeeper-jaas.conf"
        self.zookeeper_client_jaas = self.folder / "zookeeper-client-jaas.conf"
        self.zookeeper_client_file = directory / "zookeeper-client.properties"
        self.folder.mkdir(parents=True, exist_ok=True)
        os.chmod(self.folder, 0o700)
        self.authority = Authority(self.folder)
        self._passwords = self._kept_passwords()
        self._write_zookeeper_files()

    def password(self, user: str) -> str:
        return self._passwords[user]

    def launcher(self) -> Credentials:
        """Return how the launcher asks the brokers whether they serve."""
        return Credentials(self.authority.certificate, ADMIN, self.password(ADMIN))

    def broker_keys(self, broker: int, *, own_zookeeper: bool) -> dict[str, str]:
        """Return a broker's settings, with a certificate of its own.

        `own_zookeeper`: it is the launcher's ZooKeeper, which knows its user.
        """
        certificate = self.authority.issue(f"broker-{broker}", HOSTS)
        keys = {
            "security.inter.broker.protocol": PROTOCOL,
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            "sasl.enabled.mechanisms": f"{MECHANISM},SCRAM-SHA-256",
            f"listener.name.{PROTOCOL.lower()}.{MECHANISM.lower()}.sasl.jaas.config": self._jaas(BROKER),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificate.pem),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.certificate),
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": f"User:{ADMIN};User:{BROKER}",
            "http.security.listener": PROTOCOL,
        }
        if own_zookeeper:
            keys["zookeeper.set.acl"] = "true"
            keys["logyard.jaas.config.file"] = str(self.zookeeper_client_jaas)
        return keys

    def zookeeper_access(self, *, own_zookeeper: bool) -> Access:
        """Return the brokers' identity at the launcher's ZooKeeper; nobody's at another one."""
        if not own_zookeeper:
            return ANYBODY
        return Access(login=Login(AT_ZOOKEEPER, self.password(AT_ZOOKEEPER), str(self.zookeeper_client_jaas)))

    def login(self, *, own_zookeeper: bool) -> dict[str, str]:
        """Return how clients log in as the super user, by the names of an Airflow connection. Contains the password."""
        login = {
            "security_protocol": PROTOCOL,
            "sasl_mechanism": MECHANISM,
            "username": ADMIN,
            "password": self.password(ADMIN),
            "ssl_cafile": str(self.authority.certificate),
        }
        if own_zookeeper:
            login["zookeeper_config_file"] = str(self.zookeeper_client_file)
        return login

    def prepare_znodes(self, zookeeper: str, *, own_zookeeper: bool, were_open: bool = False) -> None:
        """Give the users credentials in ZooKeeper, before the first broker starts. Raises EnsembleUnreachable.

        `were_open`: the cluster has run without security, so its znodes have to become the brokers' own.
        """
        client = KazooZnodes(zookeeper, access=self.zookeeper_access(own_zookeeper=own_zookeeper))
        try:
            if own_zookeeper and were_open:
                migration.migrate(client, True, lambda line: None)
            for user in (ADMIN, BROKER):
                entity = Entity((USERS,), (user,))
                known = user_znodes.describe(client, entity)[0][1]
                if MECHANISM not in known:
                    value = f"iterations={ITERATIONS},password={self.password(user)}"
                    user_znodes.alter(client, entity, {MECHANISM: value}, ())
        finally:
            client.close()

    def write_client_file(self, bootstrap: str) -> None:
        """Write the properties of the super user, for --command-config of our tools and Kafka's."""
        keys = {
            "bootstrap.servers": bootstrap,
            "security.protocol": PROTOCOL,
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": self._jaas(ADMIN),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.certificate),
        }
        _write_properties(self.client_file, keys)

    def _kept_passwords(self) -> dict[str, str]:
        path = self.folder / "passwords.json"
        found = files.read_json(path)
        if found is None:
            found = {user: secrets.token_urlsafe(24) for user in (ADMIN, BROKER, AT_ZOOKEEPER)}
            files.write_json(path, found, files.PRIVATE)
        return dict(found)

    def _write_zookeeper_files(self) -> None:
        password = self.password(AT_ZOOKEEPER)
        server = f'Server {{\n  {_DIGEST_MODULE} required\n  user_{AT_ZOOKEEPER}="{password}";\n}};\n'
        client = f'Client {{\n  {_DIGEST_MODULE} required\n  username="{AT_ZOOKEEPER}" password="{password}";\n}};\n'
        files.write_text(self.zookeeper_jaas, server, files.PRIVATE)
        files.write_text(self.zookeeper_client_jaas, client, files.PRIVATE)
        _write_properties(self.zookeeper_client_file, {"logyard.jaas.config.file": str(self.zookeeper_client_jaas)})

    def _jaas(self, user: str) -> str:
        return f'{_SCRAM_MODULE} required username="{user}" password="{self.password(user)}";'


def _write_properties(path: Path, keys: Mapping[str, str]) -> None:
    lines = ["# Written by `logyard cluster start --secure`.", *(f"{key}={value}" for key, value in keys.items())]
    files.write_text(path, "\n".join(lines) + "\n", files.PRIVATE)

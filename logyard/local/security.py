"""The security of a local cluster: its certificates, its users with their passwords, and the files that name them.

All of it is in the folder `security` of the cluster's directory, which only its owner can read. It is made once; later
starts use the same. Passwords are in files only, never in a command line or in what is printed.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from logyard.admin.zookeeper import migration
from logyard.admin.zookeeper.znodes import KazooZnodes, make_chroot
from logyard.broker.zk.access import Access, Login
from logyard.local import files, scram_users
from logyard.local.authority import Authority
from logyard.local.ports import HOST
from logyard.local.scram_users import MECHANISM, PROTOCOL
from logyard.local.wire_login import Credentials

ADMIN, BROKER, AT_ZOOKEEPER = "admin", "broker", "kafka"
"""The super user of the client file, the user of brokers among themselves, the brokers' user at ZooKeeper."""

HOSTS = (HOST, "localhost")
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
        self._passwords = scram_users.kept(self.folder / "passwords.json", (ADMIN, BROKER, AT_ZOOKEEPER))
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
            f"listener.name.{PROTOCOL.lower()}.{MECHANISM.lower()}.sasl.jaas.config": scram_users.login_module(
                BROKER, self.password(BROKER)
            ),
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

    def zookeeper_access(self) -> Access:
        """Return the brokers' identity at the launcher's ZooKeeper."""
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

    def prepare_znodes(self, zookeeper: str, access: Access, *, migrates: bool) -> None:
        """Give the users credentials in ZooKeeper, before the first broker starts. Raises EnsembleUnreachable.

        `migrates`: the cluster has run without security, so its znodes have to become the brokers' own.
        """
        make_chroot(zookeeper, access)
        client = KazooZnodes(zookeeper, access=access)
        try:
            if migrates:
                migration.migrate(client, True, lambda line: None)
            scram_users.write_credentials(client, {user: self.password(user) for user in (ADMIN, BROKER)})
        finally:
            client.close()

    def write_client_file(self, bootstrap: str) -> None:
        """Write the properties of the super user, for --command-config of our tools and Kafka's."""
        authority = str(self.authority.certificate)
        _write_properties(self.client_file, scram_users.client_keys(bootstrap, ADMIN, self.password(ADMIN), authority))

    def _write_zookeeper_files(self) -> None:
        password = self.password(AT_ZOOKEEPER)
        server = f'Server {{\n  {_DIGEST_MODULE} required\n  user_{AT_ZOOKEEPER}="{password}";\n}};\n'
        client = f'Client {{\n  {_DIGEST_MODULE} required\n  username="{AT_ZOOKEEPER}" password="{password}";\n}};\n'
        files.write_text(self.zookeeper_jaas, server, files.PRIVATE)
        files.write_text(self.zookeeper_client_jaas, client, files.PRIVATE)
        _write_properties(self.zookeeper_client_file, {"logyard.jaas.config.file": str(self.zookeeper_client_jaas)})


def _write_properties(path: Path, keys: Mapping[str, str]) -> None:
    lines = ["# Written by `logyard cluster start --secure`.", *(f"{key}={value}" for key, value in keys.items())]
    files.write_text(path, "\n".join(lines) + "\n", files.PRIVATE)

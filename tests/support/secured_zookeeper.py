"""A real ZooKeeper with a TLS port and with users who log in by SASL DIGEST-MD5, for tests.

with running_secured_zookeeper(tmp_path) as server:
    server.connect          # plain text; a log-in is possible
    server.secure_connect   # TLS; a certificate is an identity
    server.access(tls=True, user="broker")
"""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from logyard.broker.zk.access import Access, Login
from logyard.local.authority import Authority
from logyard.local.ports import free_port
from tests.support.zookeeper import ZooKeeperServer

USERS = {"broker": "broker-secret", "other": 'ot"h\\er-sécret'}

_CONFIG = """\
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider
authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider
secureClientPort={port}
secureClientPortAddress=127.0.0.1
ssl.keyStore.location={keystore}
ssl.keyStore.type=PEM
ssl.trustStore.location={truststore}
ssl.trustStore.type=PEM
ssl.clientAuth=want
ssl.hostnameVerification=false
ssl.clientHostnameVerification=false
"""


class SecuredZooKeeper(ZooKeeperServer):
    """The server, its authority, and how its users connect."""

    def __init__(self, directory: Path, hosts: tuple[str, ...] = ("localhost", "127.0.0.1")) -> None:
        self.authority = Authority(directory / "tls")
        self._jaas = directory / "server-jaas.conf"
        directory.mkdir(parents=True, exist_ok=True)
        self.set_users(USERS)
        self.secure_port = free_port()
        issued = self.authority.issue("server", hosts)
        config = _CONFIG.format(port=self.secure_port, keystore=issued.pem, truststore=self.authority.certificate)
        super().__init__(directory, config=config, options=[f"-Djava.security.auth.login.config={self._jaas}"])

    @property
    def secure_connect(self) -> str:
        return f"127.0.0.1:{self.secure_port}"

    def set_users(self, users: dict[str, str]) -> None:
        """Write the server's users; they count from its next start on."""
        quoted = (f'user_{name}="{_escaped(password)}"' for name, password in users.items())
        module = "org.apache.zookeeper.server.auth.DigestLoginModule required"
        self._jaas.write_text(f"Server {{\n  {module}\n  {' '.join(quoted)};\n}};\n", encoding="utf-8")

    def context(self, certificate: str | None = None, *, check_hostname: bool = True) -> ssl.SSLContext:
        """A client's context that trusts this authority only, with the certificate of that name."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = check_hostname
        context.load_verify_locations(self.authority.certificate)
        if certificate is not None:
            issued = self.authority.issue(certificate)
            context.load_cert_chain(issued.certificate, issued.key)
        return context

    def access(self, *, tls: bool = False, user: str | None = None, certificate: str | None = None) -> Access:
        login = None if user is None else Login(user, USERS[user])
        return Access((lambda: self.context(certificate)) if tls else None, login, certificate is not None)


def client_jaas(path: Path, user: str, password: str | None = None) -> Path:
    """Write a client's JAAS file, with the section Client."""
    module = "org.apache.zookeeper.server.auth.DigestLoginModule required"
    secret = _escaped(USERS[user] if password is None else password)
    path.write_text(f'Client {{\n  {module}\n  username="{user}" password="{secret}";\n}};\n', encoding="utf-8")
    return path


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


@contextmanager
def running_secured_zookeeper(
    directory: Path, hosts: tuple[str, ...] = ("localhost", "127.0.0.1")
) -> Iterator[SecuredZooKeeper]:
    """A started server, stopped at the end whatever happens; its certificate is for `hosts`."""
    server = SecuredZooKeeper(directory, hosts)
    try:
        server.start()
        yield server
    finally:
        server.stop()

"""A cluster with every security protocol: TLS by a test authority, PLAIN, SCRAM, OAUTHBEARER, tokens, and ACLs.

    with secured.running(tmp_path, "K") as world:           # one broker of Apache Kafka; O is ours
        Producer(world.librdkafka("alice"))                  # SASL_SSL with SCRAM-SHA-512
        kafka.tool("acls", "--command-config", str(world.file("admin")), "--bootstrap-server", world.bootstrap(), …)
        world.allow("alice", "Topic", "flights", "Read")     # by the super user

Users: `admin` (super user), `alice`, `bob` and `nobody`, each with one password for PLAIN, one for SCRAM, a client
secret of the token endpoint and a certificate. `broker` is what the brokers log in as. The PLAINTEXT listener is
there too: its users are `User:ANONYMOUS`, who may do nothing.
"""

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from logyard.admin.configs import entities
from logyard.admin.configs import znodes as user_znodes
from logyard.admin.zookeeper.znodes import KazooZnodes
from logyard.local.ports import HOST, Ports
from tests.support import kafka
from tests.support.authority import Authority, Issued
from tests.support.real_cluster import RealCluster, eventually
from tests.support.token_endpoint import AUDIENCE, TokenEndpoint
from tests.support.zookeeper import running_zookeeper

CONTROL = "CONTROL"  # the name of the control plane's listener, where there is one
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAM, "OAUTHBEARER")
USERS = ("admin", "alice", "bob", "nobody")
_MODULES = "org.apache.kafka.common.security"
_OAUTH = f"{_MODULES}.oauthbearer"
ALLOWED_URLS = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls"


@dataclass(frozen=True, slots=True)
class Secrets:
    """Of one user: two passwords, and a client secret of the token endpoint."""

    plain: str = field(default_factory=lambda: "pl-" + secrets.token_urlsafe(12))
    scram: str = field(default_factory=lambda: "sc-" + secrets.token_urlsafe(12))
    oauth: str = field(default_factory=lambda: "oa-" + secrets.token_urlsafe(12))


class Secured:
    """A running cluster, and how its users log in."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority(directory / "tls")
        self.broker = self.authority.issue("broker", ("localhost", HOST))
        self.users = {name: Secrets() for name in USERS}
        self.certificates: dict[str, Issued] = {name: self.authority.issue(name) for name in USERS}
        self.broker_password = secrets.token_urlsafe(12)
        clients = {name: user.oauth for name, user in self.users.items()} | {"broker": self.broker_password}
        self.endpoint = TokenEndpoint(directory / "oauth", clients)
        self.cluster: RealCluster = None  # type: ignore[assignment]  # set by `running`

    @property
    def used_secrets(self) -> list[str]:
        """Every secret that somebody logs in with: nothing that a run leaves behind may hold one."""
        found = [secret for user in self.users.values() for secret in (user.plain, user.scram, user.oauth)]
        return [*found, self.broker_password]

    def bootstrap(self, protocol: str = "SASL_SSL") -> str:
        """The brokers' addresses on that listener."""
        if protocol == "PLAINTEXT":
            return self.cluster.bootstrap
        return ",".join(f"{HOST}:{of[protocol]}" for of in self.ports().values())

    def ports(self) -> dict[int, dict[str, int]]:
        """Return broker → listener → port of all listeners besides PLAINTEXT."""
        told = json.loads(listeners_file(self.directory).read_text())
        return {int(broker): of for broker, of in told.items()}

    def password(self, user: str, mechanism: str) -> str:
        known = self.users[user]
        return known.plain if mechanism == "PLAIN" else known.scram

    def librdkafka(
        self, user: str = "admin", mechanism: str = "SCRAM-SHA-512", protocol: str = "SASL_SSL"
    ) -> dict[str, str]:
        """Options of confluent-kafka; for SSL the user's certificate is the login."""
        made = {"bootstrap.servers": self.bootstrap(protocol), "security.protocol": protocol}
        if "SSL" in protocol:
            made["ssl.ca.location"] = str(self.authority.certificate)
        if protocol == "SSL":
            issued = self.certificates[user]
            made |= {"ssl.certificate.location": str(issued.certificate), "ssl.key.location": str(issued.key)}
        if protocol.startswith("SASL"):
            made["sasl.mechanisms"] = mechanism
            if mechanism == "OAUTHBEARER":
                made |= {
                    "sasl.oauthbearer.method": "oidc",
                    "sasl.oauthbearer.client.id": user,
                    "sasl.oauthbearer.client.secret": self.users[user].oauth,
                    "sasl.oauthbearer.token.endpoint.url": self.endpoint.url,
                }
            else:
                made |= {"sasl.username": user, "sasl.password": self.password(user, mechanism)}
        return made

    def java(self, user: str = "admin", mechanism: str = "SCRAM-SHA-512", protocol: str = "SASL_SSL") -> dict[str, str]:
        """Properties of Kafka's own clients and tools, without bootstrap.servers."""
        made = {"security.protocol": protocol}
        if "SSL" in protocol:
            made |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.authority.certificate)}
        if protocol == "SSL":
            made |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.certificates[user].pem)}
        if protocol.startswith("SASL"):
            made["sasl.mechanism"] = mechanism
            made["sasl.jaas.config"] = self._jaas(user, mechanism)
            if mechanism == "OAUTHBEARER":
                handler = f"{_OAUTH}.OAuthBearerLoginCallbackHandler"
                made["sasl.login.callback.handler.class"] = handler
                made["sasl.oauthbearer.token.endpoint.url"] = self.endpoint.url
        return made

    def file(self, user: str = "admin", mechanism: str = "SCRAM-SHA-512", protocol: str = "SASL_SSL") -> Path:
        """The same as a file for --command-config."""
        path = self.directory / f"{user}-{mechanism}-{protocol}.properties"
        path.touch(mode=0o600)
        path.write_text("".join(f"{key}={value}\n" for key, value in self.java(user, mechanism, protocol).items()))
        return path

    def reached_by(self, user: str) -> RealCluster:
        """The cluster as that user's producers and consumers see it; the super user manages it."""
        # A broker that has not heard of a new topic yet would refuse its creation, and for the client that is the end.
        client = {**self.librdkafka(user), "allow.auto.create.topics": "false"}
        return RealCluster(self.cluster.cluster, client, self.librdkafka("admin"))

    def admin(self) -> AdminClient:
        """The super user, by PLAIN."""
        return AdminClient(self.librdkafka("admin", "PLAIN"))

    def create(self, topic: str, partitions: int = 1, replicas: int = 1) -> None:
        admin = self.admin()  # librdkafka ends its work with the handle: it has to outlive the future
        admin.create_topics([NewTopic(topic, partitions, replicas)])[topic].result(20)

    def allow(
        self, user: str, kind: str, name: str, operation: str, *, prefixed: bool = False, deny: bool = False
    ) -> None:
        """Let a user do something; returns when the brokers know it. Kinds and operations as in librdkafka's enums."""
        parts = (
            ResourceType[kind.upper()],
            name,
            ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation[operation.upper()],
            AclPermissionType.DENY if deny else AclPermissionType.ALLOW,
        )
        binding, same = AclBinding(*parts), AclBindingFilter(*parts)
        admin = self.admin()
        admin.create_acls([binding])[binding].result(20)
        eventually(lambda: len(admin.describe_acls(same).result(20)) == 1, f"{binding} is known")

    def _jaas(self, user: str, mechanism: str) -> str:
        if mechanism == "OAUTHBEARER":
            secret = self.users[user].oauth
            return f'{_OAUTH}.OAuthBearerLoginModule required clientId="{user}" clientSecret="{secret}";'
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        password = self.password(user, mechanism)
        return f'{_MODULES}.{module} required username="{user}" password="{password}";'

    def config(self, between: str = "PLAIN", *, control: bool = False) -> dict[str, str]:
        """The brokers' keys, the same for both kinds; brokers log in at each other by the mechanism `between`.

        `control`: the controller's requests have a listener of their own, CONTROL.
        """
        known = "".join(f' user_{name}="{user.plain}"' for name, user in self.users.items())
        plain = (
            f'{_MODULES}.plain.PlainLoginModule required username="broker" password="{self.broker_password}"'
            f' user_broker="{self.broker_password}"{known};'
        )
        keys = {
            "security.inter.broker.protocol": "SASL_SSL",
            "sasl.mechanism.inter.broker.protocol": between,
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "sasl.oauthbearer.jwks.endpoint.url": f"file:{self.endpoint.jwks}",
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.broker.pem),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.certificate),
            "listener.name.ssl.ssl.client.auth": "requested",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:broker;User:admin",
            "delegation.token.secret.key": "tk-" + secrets.token_urlsafe(12),
        }
        if control:
            names = [f"{name}:{name}" for name in PROTOCOLS]
            keys["listener.security.protocol.map"] = ",".join([*names, f"{CONTROL}:SASL_SSL"])
            keys["control.plane.listener.name"] = CONTROL
        for listener in ("sasl_ssl", "sasl_plaintext", *([CONTROL.lower()] if control else [])):
            prefix = f"listener.name.{listener}"
            keys[f"{prefix}.plain.sasl.jaas.config"] = plain
            for mechanism in SCRAM:
                own = f' username="broker" password="{self.broker_password}"' if mechanism == between else ""
                module = f"{_MODULES}.scram.ScramLoginModule required{own};"
                keys[f"{prefix}.{mechanism.lower()}.sasl.jaas.config"] = module
            own = f' clientId="broker" clientSecret="{self.broker_password}"' if between == "OAUTHBEARER" else ""
            keys[f"{prefix}.oauthbearer.sasl.jaas.config"] = f"{_OAUTH}.OAuthBearerLoginModule required{own};"
            if own:
                login = f"{_OAUTH}.OAuthBearerLoginCallbackHandler"
                keys[f"{prefix}.oauthbearer.sasl.login.callback.handler.class"] = login
                keys["sasl.oauthbearer.token.endpoint.url"] = self.endpoint.url
            handler = f"{_OAUTH}.OAuthBearerValidatorCallbackHandler"
            keys[f"{prefix}.oauthbearer.sasl.server.callback.handler.class"] = handler
        return keys

    def make_brokers_user(self, zookeeper: str, mechanism: str) -> None:
        """Write the brokers' own SCRAM credential to ZooKeeper, before there is a broker."""
        client = KazooZnodes(zookeeper)
        try:
            made = {mechanism: f"iterations=4096,password={self.broker_password}"}
            user_znodes.alter(client, entities.Entity((entities.USERS,), ("broker",)), made, ())
        finally:
            client.close()

    def make_scram_users(self) -> None:
        """Give every user both SCRAM mechanisms; returns when the brokers know them."""
        kinds = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        admin = self.admin()
        wanted = [
            UserScramCredentialUpsertion(name, ScramCredentialInfo(kind, 4096), user.scram.encode())
            for name, user in self.users.items()
            for kind in kinds
        ]
        for done in admin.alter_user_scram_credentials(wanted).values():
            done.result(30)
        for user in self.users:
            told = AdminClient(self.librdkafka(user))
            eventually(lambda told=told: told.list_topics(timeout=3).brokers, f"{user} can log in")


def listeners_file(directory: Path) -> Path:
    """Listeners besides PLAINTEXT: broker → protocol → port; tests/reference/either_broker.py reads it."""
    return directory / "listeners.json"


@contextmanager
def running(
    directory: Path,
    kinds: str,
    config: Mapping[str, str] | None = None,
    jvm: Sequence[str] = kafka.BROKER_JVM,
    scram: bool = True,
    between: str = "PLAIN",
    control: bool = False,
    token_life_s: float = 300,
) -> Iterator[Secured]:
    """A secured cluster; each letter of `kinds` is a broker: K is Apache Kafka, O is ours.

    `config` overrides the brokers' keys; without `scram` the SCRAM users are not made. Brokers log in at each other by
    the mechanism `between`; with `control` the controller's requests have a listener of their own.
    """
    directory.mkdir(parents=True, exist_ok=True)
    world = Secured(directory)
    world.endpoint.life_s = token_life_s
    chosen = Ports(directory)
    names = {p: p.lower() for p in (*PROTOCOLS, *([CONTROL] if control else [])) if p != "PLAINTEXT"}
    ports = {b: {p: chosen.choose(f"broker-{b}-{name}") for p, name in names.items()} for b in range(len(kinds))}
    listeners_file(directory).write_text(json.dumps(ports))
    options = (*jvm, f"{ALLOWED_URLS}=file:{world.endpoint.jwks},{world.endpoint.url}")
    keys = {**world.config(between, control=control), **(config or {})}
    with ExitStack() as stack:
        stack.enter_context(world.endpoint)
        zookeeper = None
        if between in SCRAM:
            zookeeper = stack.enter_context(running_zookeeper(directory / "zookeeper")).connect
            world.make_brokers_user(zookeeper, between)
        world.cluster = stack.enter_context(kafka.running(directory, kinds, keys, options, zookeeper))
        if scram:
            world.make_scram_users()
        yield world

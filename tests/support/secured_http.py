"""The HTTP side of a broker with TLS on a real socket: real leases, log-ins, ACLs; users and ACLs in memory.

    async with LeaseWorld() as world, serving(world) as side:       # or serving(world, "SSL") for certificates
        side.allow(ResourceType.TOPIC, "t", Operation.READ, Operation.DESCRIBE)    # User:alice, for all requests
        answer = await side.ask("GET", "/leases", ALICE)

`ALICE` and `SCRAM_BOB` are (user, password); a text is a bearer token, None is nobody.
"""

import asyncio
import secrets
import ssl
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx

from logyard.broker.config.broker import BrokerConfig
from logyard.broker.http import routes
from logyard.broker.http.access import Access
from logyard.broker.http.identities import LoggedIn, LoginMeans
from logyard.broker.http.rights_table import CLUSTER, Route
from logyard.broker.http.run_file import RunFile
from logyard.broker.http.run_routes import keeping, run_routes
from logyard.broker.http.run_tokens import RunTokens
from logyard.broker.http.server import HttpServer
from logyard.broker.http_gate import decide_by
from logyard.broker.security.acls.rules import Acls
from logyard.broker.security.passwords import Passwords
from logyard.broker.security.sasl.plain import PlainServer
from logyard.broker.server.authorizer import AclAuthorizer
from logyard.broker.server.logins.failures import LoginCounters, LoginFailures
from logyard.broker.tls.handshakes import Handshakes
from logyard.broker.tls.listeners import TlsListeners
from logyard.broker.znodes.acls import AclEntry, Operation, Permission, ResourcePattern, ResourceType
from logyard.broker.znodes.scram_credentials import ScramCredential
from tests.support.certificates import Authority, Issued, pem_settings
from tests.support.lease_world import LeaseWorld, no_metrics
from tests.support.tls_listener import client_context

AUTHORITY = Authority()
SERVER = AUTHORITY.issue("broker")
ALICE = ("alice", "alice's password")
SCRAM_BOB = ("bob", "bob's password")
CERTIFICATE = AUTHORITY.issue("alice")

Who = tuple[str, str] | str | None


class SecuredHttp:
    """See the head of this file."""

    def __init__(self, world: LeaseWorld, acls: Acls, runs: RunTokens, counters: LoginCounters) -> None:
        self.world, self.acls, self.runs, self.counters = world, acls, runs, counters
        self.server: HttpServer = None  # type: ignore[assignment]  # set by `serving`
        self.client: httpx.AsyncClient = None  # type: ignore[assignment]
        self.handshakes = Handshakes()

    def allow(self, kind: ResourceType, name: str, *operations: Operation, principal: str = "User:alice") -> None:
        """Let the principal do exactly this on the resource."""
        entries = [AclEntry(principal, Permission.ALLOW, operation) for operation in operations]
        self.acls.put(ResourcePattern(kind, name), entries)

    def allow_topic(self, *operations: Operation, topic: str = "t") -> None:
        self.allow(ResourceType.TOPIC, topic, *operations)

    def allow_cluster(self, *operations: Operation) -> None:
        self.allow(ResourceType.CLUSTER, CLUSTER, *operations)

    async def ask(self, method: str, path: str, who: Who, body: Any = None, **more: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {who}"} if isinstance(who, str) else {}
        auth = who if isinstance(who, tuple) else None
        return await self.client.request(method, path, auth=auth, headers=headers, json=body, **more)

    async def token(self, purpose: str = "audit", topic: str = "t", run_id: str = "run", **more: Any) -> str:
        """Get a run's token as alice, who needs the rights."""
        body = {"topic": topic, "purpose": purpose, "run_id": run_id, **more}
        answer = await self.ask("POST", "/tokens", ALICE, body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["token"])


@asynccontextmanager
async def serving(
    world: LeaseWorld,
    protocol: str = "SASL_SSL",
    *,
    log_dir: str | None = None,
    certificate: Issued | None = None,
    open_routes: frozenset[Route] = frozenset(),
    delay_s: float = 0.0,
) -> AsyncIterator[SecuredHttp]:
    """Serve on a free port of loopback. `log_dir`: where runs are kept, a directory that is not there if None."""
    acls, counters = Acls(), LoginCounters()
    pool = ThreadPoolExecutor(1)
    run_blocking = partial(asyncio.get_running_loop().run_in_executor, pool)
    runs = RunTokens(world.clock, secrets.token_bytes)
    side = SecuredHttp(world, acls, runs, counters)
    file = RunFile(log_dir, runs, run_blocking) if log_dir is not None else _NoFile()
    if isinstance(file, RunFile):
        file.load()
    bobs = ScramCredential.of_password("SCRAM-SHA-256", SCRAM_BOB[1], 4096, b"salt")
    plain: Callable[[], PlainServer] = partial(PlainServer, dict([ALICE]).get)
    has_passwords = protocol == "SASL_SSL"
    passwords = Passwords(
        plain if has_passwords else None, {"SCRAM-SHA-256": {"bob": bobs}.get} if has_passwords else {}
    )
    means = LoginMeans(passwords, None, runs, run_blocking, delay_s)
    identities = LoggedIn(means, LoginFailures(world.clock.monotonic), counters)
    access = Access(
        identities,
        decide_by(AclAuthorizer(acls, ["User:root"])),
        world.leases.book,
        open_routes=open_routes,
        in_use=keeping(runs, file),
    )
    asgi = routes.build(
        world.lease_service,
        access,
        lambda: (True, {"status": "ready", "broker_id": 1}),
        no_metrics,
        run_routes(runs, file),
    )
    tls = TlsListeners(side.handshakes)
    tls.open(BrokerConfig.parse("", settings(protocol)))
    side.server = HttpServer("127.0.0.1", 0, tls.http)
    await side.server.start(asgi)
    context: ssl.SSLContext = client_context(certificate, AUTHORITY)
    # Shorter than the server keeps an idle connection: else a request may meet the server's close.
    limits = httpx.Limits(keepalive_expiry=0.5)
    side.client = httpx.AsyncClient(base_url=f"https://127.0.0.1:{side.server.port}", verify=context, limits=limits)
    try:
        yield side
    finally:
        await side.client.aclose()
        await side.server.close()
        side.handshakes.close()
        pool.shutdown()


def settings(protocol: str) -> dict[str, str]:
    """Return the settings of a broker whose HTTP side has the security of its only listener."""
    return {
        "zookeeper.connect": "z:1",
        "listeners": f"{protocol}://127.0.0.1:0",
        "advertised.listeners": f"{protocol}://127.0.0.1:1",
        "security.inter.broker.protocol": protocol,
        "http.security.listener": protocol,
        "ssl.client.auth": "required",
        **{key: value.replace("\\n", "\n") for key, value in pem_settings("", SERVER, AUTHORITY).items()},
    }


class _NoFile:
    async def save(self) -> None:
        """Runs are kept in memory only."""

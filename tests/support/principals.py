"""A broker with an authorizer, and clients of any principal over real sockets, without a log-in."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from logyard.broker.protocol import codec
from logyard.broker.server import connection
from logyard.broker.server.api_table import APIS
from logyard.broker.server.request import Session
from logyard.broker.znodes.acls import AclEntry, Operation, PatternType, Permission, ResourcePattern, ResourceType
from tests.support.inside_broker import InsideBroker

KEYS = {api.name: key for key, api in APIS.items()}
AUTHORIZER = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS;User:root",
    "group.initial.rebalance.delay.ms": "0",
}


class Secured(InsideBroker):
    """A broker with an authorizer; `User:ANONYMOUS`, which is its own principal too, and `User:root` may do all."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, **settings: str) -> None:
        super().__init__(directory, AUTHORIZER | {key.replace("_", "."): value for key, value in settings.items()})
        self._next = "User:ANONYMOUS"
        self._clients: list[Client] = []
        monkeypatch.setattr(connection, "Session", self._session)

    async def __aenter__(self) -> "Secured":
        await super().__aenter__()
        async with asyncio.timeout(30):
            while not self.components.controller.is_active:
                await asyncio.sleep(0.01)
        return self

    async def __aexit__(self, *of: object) -> None:
        for client in self._clients:
            client.close()
        await super().__aexit__(*of)

    def _session(self, connection_id: int, listener: str, host: str) -> Session:
        return Session(connection_id, listener, host, principal=self._next)

    async def client(self, principal: str) -> "Client":
        """A connection whose principal that is."""
        self._next = principal
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port))
        self._clients.append(client)
        await client.ask("ApiVersions", 0)  # now the broker has accepted it
        self._next = "User:ANONYMOUS"
        return client

    def put(self, *acls: "Acl") -> None:
        """Have these ACLs and no others, at once."""
        known = self.components.authorization.acls
        assert known is not None
        wanted: dict[ResourcePattern, list[AclEntry]] = {pattern: [] for pattern in known.known.patterns()}
        for pattern, entry in acls:
            wanted.setdefault(pattern, []).append(entry)
        for pattern, entries in wanted.items():
            known.known.put(pattern, entries)


Acl = tuple[ResourcePattern, AclEntry]


def acl(
    principal: str,
    operation: Operation,
    resource: ResourceType,
    name: str,
    *,
    allows: bool = True,
    kind: PatternType = PatternType.LITERAL,
    host: str = "*",
) -> Acl:
    permission = Permission.ALLOW if allows else Permission.DENY
    return ResourcePattern(resource, name, kind), AclEntry(principal, permission, operation, host)


class Client:
    """Asks over one socket by the names of Kafka's APIs."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, api: str, version: int | None = None, **fields: Any) -> Any:
        """Return the decoded answer. Raises ConnectionError if the broker closes the connection instead."""
        key = KEYS[api]
        version = APIS[key].versions[1] if version is None else version
        self._writer.write(codec.encode_request(key, version, 7, "c", fields))
        try:
            size = int.from_bytes(await asyncio.wait_for(self._reader.readexactly(4), 30), "big")
            frame = await self._reader.readexactly(size)
        except asyncio.IncompleteReadError:
            raise ConnectionError("the broker closed the connection") from None
        return codec.decode_response(key, version, memoryview(frame))[1]

    def close(self) -> None:
        self._writer.close()

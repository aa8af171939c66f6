"""Every byte of every log-in cut, repeated and flipped: nobody gets in as somebody else, and nothing breaks."""

import asyncio
import struct
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from logyard.broker.protocol import codec
from logyard.broker.security.sasl.bearer_tokens import BearerToken, TokenRefused
from logyard.broker.security.sasl.gssapi import GssapiClient, GssapiServer
from logyard.broker.security.sasl.kerberos_names import KerberosNames
from logyard.broker.security.sasl.mechanism import (
    GSSAPI,
    OAUTHBEARER,
    PLAIN,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    ClientExchange,
    ServerExchange,
)
from logyard.broker.security.sasl.oauthbearer import OAuthBearerServer
from logyard.broker.security.sasl.plain import PlainClient, PlainServer
from logyard.broker.security.sasl.scram import ScramClient, ScramLookup, ScramServer
from logyard.broker.server.connection import Connection
from logyard.broker.server.dispatch import Dispatcher
from logyard.broker.server.logins.failures import LoginCounters, LoginFailures
from logyard.broker.server.logins.login import Login, LoginRules
from logyard.broker.server.logins.mechanisms import Mechanisms
from logyard.broker.server.request import Session
from logyard.broker.znodes.scram_credentials import ScramCredential
from tests.support.connected import Wire
from tests.support.lengths import IS_PROOF
from tests.support.sasl_client import OAuthBearerClient
from tests.support.scripted_gss import ScriptedContext

USERS = {"alice": "wonder", "bob": "build"}
CREDENTIALS = {
    mechanism: {user: ScramCredential.of_password(mechanism, word, 4096, b"salt") for user, word in USERS.items()}
    for mechanism in (SCRAM_SHA_256, SCRAM_SHA_512)
}
TICKET, PROOF = b"alice's ticket for this broker", b"the broker's proof"
TOKEN = "head.alice.signature"


class OnlyAlices:
    """A validator: as with a signature, no other token is valid."""

    def validate(self, token: str) -> BearerToken:
        if token != TOKEN:
            raise TokenRefused("another token")
        return BearerToken("alice", 2_000_000)


def scram_server(mechanism: str) -> ScramServer:
    lookup = ScramLookup(CREDENTIALS[mechanism].get, lambda _: None)
    return ScramServer(mechanism, lookup, lambda: "server-nonce")


SERVERS: dict[str, Callable[[], ServerExchange]] = {
    PLAIN: lambda: PlainServer(USERS.get),
    SCRAM_SHA_256: lambda: scram_server(SCRAM_SHA_256),
    SCRAM_SHA_512: lambda: scram_server(SCRAM_SHA_512),
    GSSAPI: lambda: GssapiServer(lambda: ScriptedContext([TICKET], [PROOF]), KerberosNames(["DEFAULT"], "R")),
    OAUTHBEARER: lambda: OAuthBearerServer(OnlyAlices()),
}
CLIENTS: dict[str, Callable[[], ClientExchange]] = {
    PLAIN: lambda: PlainClient("alice", "wonder"),
    SCRAM_SHA_256: lambda: ScramClient(SCRAM_SHA_256, "alice", "wonder", "client-nonce"),
    SCRAM_SHA_512: lambda: ScramClient(SCRAM_SHA_512, "alice", "wonder", "client-nonce"),
    GSSAPI: lambda: GssapiClient(lambda: ScriptedContext([b"", PROOF], [TICKET, b""])),
    OAUTHBEARER: lambda: OAuthBearerClient(TOKEN),
}
VERSIONS, HANDSHAKE, AUTHENTICATE, METADATA = 18, 17, 36, 3


class Broker:
    """What is behind a log-in: it answers ApiVersions, and notes who asks for more."""

    def __init__(self) -> None:
        self.served: list[str] = []

    def may_pipeline(self, api_key: int) -> bool:
        return False

    def has_small_answer(self, api_key: int) -> bool:
        return True

    def refusal(self, *_: object) -> None:
        return None

    def __call__(self, session: Session, frame: memoryview) -> bytes:
        if int.from_bytes(frame[:2], "big") == VERSIONS:
            return b"\0\0\0\6\0\0\0\1\0\0"
        self.served.append(session.principal)
        return b"\0\0\0\4\0\0\0\2"


class Peer:
    """One connection that has to log in, without sockets."""

    def __init__(self) -> None:
        self.broker, self.wire = Broker(), Wire()
        self.connection = Connection(cast(Dispatcher, self.broker), "IN", 1, 1 << 20, lambda _: True, lambda _: None)
        rules = LoginRules(
            mechanisms=Mechanisms(SERVERS, dict.fromkeys(SERVERS, 0)),
            dispatcher=cast(Dispatcher, self.broker),
            failures=LoginFailures(lambda: 0.0),
            run_blocking=self._here,
            now_ms=lambda: 1_000_000,
            delay_s=0.0,
            token_bytes_max=20_000,
            frame_bytes_max=1 << 20,
            counters=LoginCounters(),
        )
        Login.begin(rules, self.connection)
        self.connection.connection_made(self.wire)  # type: ignore[arg-type]

    @staticmethod
    async def _here(work: Callable[[], Any]) -> Any:
        return work()

    async def feed(self, data: bytes) -> None:
        view = memoryview(data)
        while view and not self.wire.closed:
            buffer = self.connection.get_buffer(-1)
            taken = min(len(buffer), len(view))
            buffer[:taken] = view[:taken]
            self.connection.buffer_updated(taken)
            view = view[taken:]
        for _ in range(4):
            await asyncio.sleep(0)

    def close(self) -> None:
        self.connection.connection_lost(None)


def sized(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


async def conversation(mechanism: str, handshake: int) -> list[bytes]:
    """What an honest client sends, frame by frame, with a request after the log-in."""
    peer, client = Peer(), CLIENTS[mechanism]()
    frames = [
        codec.encode_request(VERSIONS, 0, 1, "c", {}),
        codec.encode_request(HANDSHAKE, handshake, 2, "c", {"mechanism": mechanism}),
    ]
    for frame in frames:
        await peer.feed(frame)
    token: bytes | None = client.first()
    while token is not None:
        asked = codec.encode_request(AUTHENTICATE, 2, 3, "c", {"auth_bytes": token})
        frames.append(asked if handshake else sized(token))
        await peer.feed(frames[-1])
        answer = peer.wire.written[-1][4:]
        given = bytes(codec.decode_response(AUTHENTICATE, 2, memoryview(answer))[1].auth_bytes) if handshake else answer
        token = client.step(given)
    frames.append(codec.encode_request(METADATA, 9, 4, "c", {"topics": []}))
    await peer.feed(frames[-1])
    assert peer.broker.served == ["User:alice"]
    peer.close()
    return frames


def spoilt(frames: list[bytes], every: int) -> Iterator[bytes]:
    """Variants of a conversation, each as one stream of bytes: at every byte, or every so many bytes."""
    for number, frame in enumerate(frames[:-1]):
        before, after = b"".join(frames[:number]), b"".join(frames[number + 1 :])
        yield before + frame + frame + after
        yield before + after
        for at in range(0, len(frame), every):
            yield before + frame[:at] + after
            yield before + frame[:at] + frame[at + 1 :] + after
            yield before + frame[: at + 1] + frame[at:] + after
            for bit in (0x01, 0x80, 0xFF):
                yield before + frame[:at] + bytes([frame[at] ^ bit]) + frame[at + 1 :] + after


@pytest.mark.parametrize("every", [13, pytest.param(1 if IS_PROOF else 3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("handshake", [0, 1])
@pytest.mark.parametrize("mechanism", list(SERVERS))
async def test_spoilt_log_ins(mechanism: str, handshake: int, every: int) -> None:
    frames = await conversation(mechanism, handshake)
    with structlog.testing.capture_logs() as logged:
        tried = 0
        for stream in spoilt(frames, every):
            peer = Peer()
            await peer.feed(stream)
            # A changed client id, correlation id or size of a token is nobody else's log-in.
            assert set(peer.broker.served) <= {"User:alice"}, stream
            peer.close()
            tried += 1
    assert tried > 300 / every
    assert [line for line in logged if line["log_level"] == "error"] == []
    assert "wonder" not in repr([{k: v for k, v in line.items() if k != "user"} for line in logged])


@given(st.lists(st.binary(max_size=40), max_size=4))
async def test_any_frames(frames: list[bytes]) -> None:
    peer = Peer()
    await peer.feed(b"".join(map(sized, frames)))
    assert peer.broker.served == []
    peer.close()

"""The public keys that OAUTHBEARER's tokens are verified with: a JWKS document, read again at intervals (facts §18.1).

Rule 1: it is read in a thread, at the start, every `refresh_s`, and after a failure with growing pauses. Keys that
        were read once stay until newer ones are.
Rule 2: a token with an unknown key id has it read early: each id once in UNKNOWN_PAUSE_S, all of them together once in
        EARLY_PAUSE_S.
"""

import asyncio
import http.client
import time
import urllib.request
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

import structlog

from logyard.broker import tasks
from logyard.broker.event_loop import RunBlocking
from logyard.broker.security.sasl.jwks_tokens import SigningKey, parse_keys

UNKNOWN_PAUSE_S = 60.0
UNKNOWN_MAX = 256
EARLY_PAUSE_S = 1.0
TIMEOUT_S = 10.0
"""How long connecting and each piece of the document may take."""
DOCUMENT_S_MAX = 60.0
"""How long all of it may take: a document that comes byte by byte does not keep its thread."""
PIECE_BYTES = 256 * 1024
DOCUMENT_BYTES_MAX = 4 << 20
SCHEMES = ("https", "http", "file")

log = structlog.get_logger("logyard.login")


@dataclass(frozen=True, slots=True)
class JwksSettings:
    """`sasl.oauthbearer.jwks.endpoint.*` of one listener; times are seconds."""

    url: str
    refresh_s: float
    retry_s: float
    retry_max_s: float

    def __post_init__(self) -> None:
        if urlsplit(self.url).scheme not in SCHEMES:
            raise ValueError(f"sasl.oauthbearer.jwks.endpoint.url: {', '.join(SCHEMES)} is expected")


class SigningKeys:
    """See the head of this file. Made on the event loop; `keys` and `unknown` may be called in any thread."""

    def __init__(
        self, settings: JwksSettings, run_blocking: RunBlocking, read: Callable[[str], bytes] | None = None
    ) -> None:
        self._settings = settings
        self._run_blocking = run_blocking
        self._read = read or read_document
        self._keys: tuple[SigningKey, ...] = ()
        self._loop = asyncio.get_running_loop()
        self._wanted = asyncio.Event()
        self._asked: OrderedDict[str, float] = OrderedDict()
        self._early_s = -EARLY_PAUSE_S
        self._task = tasks.keep("signing keys", self._run)

    def keys(self) -> Sequence[SigningKey]:
        """Return the keys that were read last."""
        return self._keys

    def unknown(self, key_id: str) -> None:
        """Have the document read early, because a token names a key that is not there."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._want, key_id)

    def close(self) -> None:
        """Read the document no more."""
        self._task.cancel()

    def _want(self, key_id: str) -> None:
        now = self._loop.time()
        if now - self._early_s < EARLY_PAUSE_S or now - self._asked.get(key_id, -UNKNOWN_PAUSE_S) < UNKNOWN_PAUSE_S:
            return
        self._asked.pop(key_id, None)
        self._asked[key_id] = self._early_s = now
        if len(self._asked) > UNKNOWN_MAX:
            self._asked.popitem(last=False)
        self._wanted.set()

    async def _run(self) -> None:
        settings, failures = self._settings, 0
        while True:
            self._wanted.clear()
            try:
                document = await self._run_blocking(partial(self._read, settings.url))
                self._keys = await self._run_blocking(partial(parse_keys, document))
                failures, pause_s = 0, settings.refresh_s
            except (OSError, ValueError) as error:
                pause_s = min(settings.retry_max_s, settings.retry_s * 2.0 ** min(failures, 30))
                failures += 1
                log.warning("cannot read the keys of tokens", url=settings.url, error=str(error), again_in_s=pause_s)
            try:
                async with asyncio.timeout(pause_s):
                    await self._wanted.wait()
            except TimeoutError:
                continue


def read_document(url: str) -> bytes:
    """Return the document at a URL. Raises OSError (URLError is one), ValueError."""
    ends = time.monotonic() + DOCUMENT_S_MAX
    document = bytearray()
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            while piece := answer.read1(PIECE_BYTES):
                document += piece
                if len(document) > DOCUMENT_BYTES_MAX:
                    raise ValueError(f"the document has more than {DOCUMENT_BYTES_MAX} bytes")
                if time.monotonic() > ends:
                    raise TimeoutError(f"the document is not there after {DOCUMENT_S_MAX:.0f} s")
    except http.client.HTTPException as error:
        raise OSError(f"no answer of HTTP: {error!r}") from None
    return bytes(document)

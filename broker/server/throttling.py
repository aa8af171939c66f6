"""What quotas mean for an answer: how long its client is held back (KIP-219), and that the connection is muted for it.

The answer goes out at once and says how long (`throttle_time_ms`); meanwhile nothing more is read of that connection.
Handlers of hot paths first look whether there is any quota of their kind, so that without one nothing here is called.
"""

import time
from collections.abc import Awaitable, Generator
from typing import Any

from logyard.broker.security.quotas import Quotas, RateQuota
from logyard.broker.server.request import Request

# Size, key, version, correlation id and the length of the client id: what is in front of a request's body.
_HEADER_BYTES = 14


def user_of(request: Request) -> str:
    """The name that quotas know the client by: its principal without the type."""
    return request.session.principal.partition(":")[2]


def charge_time(quota: RateQuota, request: Request) -> int:
    """Count the loop's time this request has taken, in percent of a second; returns the wait in milliseconds."""
    spent = request.spent_s or time.perf_counter() - request.begun_s
    return quota.record(user_of(request), request.client_id or "", spent * 100)


def produce_throttle_ms(quotas: Quotas, request: Request, acks: int) -> int:
    """Charge a produce request that is about to be answered, mute its connection if need be, return for how long.

    With acks=0 there is no answer that could tell of it: such a client is held back for its bytes only.
    """
    held = 0
    if quotas.produce is not None:
        size = _HEADER_BYTES + len(request.client_id or "") + len(request.body)
        held = quotas.produce.record(user_of(request), request.client_id or "", size)
    if quotas.request is not None and acks != 0:
        held = max(held, charge_time(quotas.request, request))
    if held:
        request.session.mute(held)
    return held


def fetch_throttle_ms(quotas: Quotas, request: Request, size: int) -> int:
    """Charge a fetch that is about to be answered with `size` bytes; where it has to wait, it gets none of them."""
    user, client_id = user_of(request), request.client_id or ""
    held = charge_time(quotas.request, request) if quotas.request is not None else 0
    if quotas.fetch is not None:
        held = max(held, quotas.fetch.record(user, client_id, size))
        if held:
            quotas.fetch.take_back(user, client_id, size)
    if held:
        request.session.mute(held)
    return held


class MutationCharge:
    """What one request that creates or deletes partitions takes out of its client's quota (KIP-599).

    `strict_since` is the first version whose clients know THROTTLING_QUOTA_EXCEEDED (89) and try again by themselves;
    older ones are served and muted.
    """

    def __init__(self, quotas: Quotas, request: Request, strict_since: int) -> None:
        self._quota = quotas.mutation
        self._client = user_of(request), request.client_id or ""
        self._strict = request.api_version >= strict_since
        self.throttle_ms = 0

    def refuses(self, partitions: int) -> bool:
        """Take that many partitions out, or say that the quota is used up and nothing may be done now."""
        if self._quota is None:
            return False
        if self._strict:
            overdrawn = self._quota.overdrawn_ms(*self._client)
            if overdrawn:
                self.throttle_ms = overdrawn
                return True
        self._quota.take(*self._client, partitions)
        if not self._strict:
            self.throttle_ms = self._quota.overdrawn_ms(*self._client)
        return False

    def give_back(self, partitions: int) -> None:
        """These were not touched after all."""
        if self._quota is not None:
            self._quota.take(*self._client, -partitions)


EXCEEDED = "the quota of partitions created and deleted is used up: try again after the throttle time"


class Timed:
    """An awaitable that adds the loop's time it takes to `request.spent_s`, waits left out."""

    __slots__ = ("_request", "_work")

    def __init__(self, request: Request, work: Awaitable[Any]) -> None:
        self._request = request
        self._work = work

    def __await__(self) -> Generator[Any, Any, Any]:
        request, steps = self._request, self._work.__await__()
        thrown: BaseException | None = None
        while True:
            begun = time.perf_counter()
            try:
                waited = next(steps) if thrown is None else steps.throw(thrown)
            except StopIteration as ended:
                return ended.value
            finally:
                request.spent_s += time.perf_counter() - begun
            thrown = None
            try:
                yield waited
            except BaseException as error:  # handed on to where it belongs: into what is awaited
                thrown = error

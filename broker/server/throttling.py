"""Applies quotas to an answer: computes the client's throttle time, and mutes its connection for it (KIP-219).

The answer is sent at once and has the throttle time (`throttle_time_ms`); meanwhile the connection's requests wait.
Handlers of hot paths call this module only if there is a quota of their kind.
"""

import time
from collections.abc import Awaitable, Generator
from typing import Any

from logyard.broker.security.quotas import Quotas, RateQuota
from logyard.broker.server.request import Request

# The bytes before a request's body: size, key, version, correlation id, length of the client id.
_HEADER_BYTES = 14


def user_of(request: Request) -> str:
    """Return the user's name in quotas: the principal without its type."""
    return request.session.principal.partition(":")[2]


def charge_time(quota: RateQuota, request: Request) -> int:
    """Charge the request's time on the event loop, in percent of a second. Returns the throttle time in ms."""
    spent = request.spent_s or time.perf_counter() - request.begun_s
    return quota.record(user_of(request), request.client_id or "", spent * 100)


def produce_throttle_ms(quotas: Quotas, request: Request, acks: int) -> int:
    """Charge a Produce before its answer, and mute its connection if needed. Returns the throttle time in ms.

    With acks=0 there is no answer to tell the client; it is charged for its bytes, but not for its time.
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
    """Charge a Fetch before its answer of `size` bytes. Returns the throttle time in ms; if it is not 0, the answer
    must be empty (its bytes are not charged)."""
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
    """Charges a request that creates or deletes partitions to its client's quota (KIP-599).

    `strict_since` is the first version whose clients know THROTTLING_QUOTA_EXCEEDED and try again; older clients are
    served and muted.
    """

    def __init__(self, quotas: Quotas, request: Request, strict_since: int) -> None:
        self._quota = quotas.mutation
        self._client = user_of(request), request.client_id or ""
        self._strict = request.api_version >= strict_since
        self.throttle_ms = 0

    def refuses(self, partitions: int) -> bool:
        """Charge that many partitions; True, with nothing charged, if the quota is used up."""
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
        """Return the charge for partitions that were not changed after all."""
        if self._quota is not None:
            self._quota.take(*self._client, -partitions)
            if not self._strict:
                self.throttle_ms = self._quota.overdrawn_ms(*self._client)


EXCEEDED = "the quota of partitions created and deleted is used up: try again after the throttle time"


class Timed:
    """An awaitable that adds its time on the event loop, without waits, to `request.spent_s`."""

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
            except BaseException as error:  # raised inside `work` at the next step
                thrown = error

"""Who may connect, and how much memory requests may take: the limits of all listeners of a broker together.

Rule 1: too many connections in all (`max.connections`) or in a second (`max.connection.creation.rate`) are left in the
        kernel's queue until there is room; brokers among themselves are let in where they have a listener of their own.
        The same two hold for each listener by itself (`listener.name.<listener>.…`, else the broker's value), as in
        Kafka, and there for brokers too.
Rule 2: too many from one address are closed at once (`max.connections.per.ip`, and its overrides); too many in a second
        from one address are closed when the time they have to wait is over (`connection_creation_rate`, KIP-612).
Rule 3: memory is granted for a whole request before its bytes are read, so that whoever has begun can end.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from logyard.broker.config.addresses import address_counts, is_address
from logyard.broker.config.broker import BrokerConfig
from logyard.broker.metadata.dynamic_configs import DEFAULT_ENTITY, Quota
from logyard.broker.security.quotas import IP_QUOTA
from logyard.broker.security.rates import SampledRate
from logyard.broker.server.host_names import HostNames

UNLIMITED = 2**31 - 1
ADDRESSES_SWEPT_AT = 1024


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """What one listener may have by itself: connections, and new ones in a second."""

    connections_max: int = UNLIMITED
    creation_rate: int = UNLIMITED


@dataclass(slots=True)
class Limits:
    """The settings of this file. `idle_ms` and `memory_bytes` below zero: no bound."""

    connections_max: int = UNLIMITED
    per_ip_max: int = UNLIMITED
    per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    per_name_overrides: Mapping[str, int] = field(default_factory=dict)
    creation_rate: int = UNLIMITED
    listeners: Mapping[str, ListenerLimits] = field(default_factory=dict)
    idle_ms: int = 600_000
    frame_bytes_max: int = 100 * 1024 * 1024
    memory_bytes: int = -1
    windows: int = 11
    window_ms: int = 1000

    def take_over(self, config: BrokerConfig) -> None:
        """Take what may change while the broker runs."""
        counts = address_counts(config.str("max.connections.per.ip.overrides"))
        self.per_ip_overrides = {host: count for host, count in counts.items() if is_address(host)}
        self.per_name_overrides = {host: count for host, count in counts.items() if not is_address(host)}
        self.connections_max = config.int("max.connections")
        self.per_ip_max = config.int("max.connections.per.ip")
        self.creation_rate = config.int("max.connection.creation.rate")
        self.listeners = {
            endpoint.listener: ListenerLimits(
                config.int_of_listener(endpoint.listener, "max.connections"),
                config.int_of_listener(endpoint.listener, "max.connection.creation.rate"),
            )
            for endpoint in config.listeners
        }

    def of(self, listener: str) -> ListenerLimits:
        """A listener's own limits."""
        return self.listeners.get(listener, _NO_LIMITS)


_NO_LIMITS = ListenerLimits()


def limits_from(config: BrokerConfig) -> Limits:
    """Read the limits out of the broker's configuration."""
    limits = Limits(
        idle_ms=config.int("connections.max.idle.ms"),
        frame_bytes_max=config.int("socket.request.max.bytes"),
        memory_bytes=config.int("queued.max.request.bytes"),
        windows=config.int("quota.window.num"),
        window_ms=config.int("quota.window.size.seconds") * 1000,
    )
    limits.take_over(config)
    return limits


class Guest(Protocol):
    """A connection, as far as this file knows it."""

    def close(self) -> None: ...


class Stay(NamedTuple):
    """Where a connection came from, and where to."""

    host: str
    listener: str
    protected: bool


class Admission:
    """Counts the connections of every listener. `now_ms` never goes back."""

    def __init__(self, limits: Limits, now_ms: Callable[[], float]) -> None:
        self.limits = limits
        self.ip_quotas: Callable[[], Mapping[str, Quota]] = dict
        self._now_ms = now_ms
        self._guests: dict[Guest, Stay] = {}  # the longest silent first, as far as the last sweep knows
        self._sent_away: set[Guest] = set()  # of these, who were closed for a protected one
        self._per_ip: Counter[str] = Counter()
        self._per_listener: Counter[str] = Counter()
        self._rate = SampledRate(limits.windows, limits.window_ms)
        self._listener_rates: dict[str, SampledRate] = {}
        self._ip_rates: dict[str, SampledRate] = {}
        self._room = asyncio.Event()
        self._of_names: Mapping[str, int] = {}
        self._names = HostNames(self._addresses_changed)
        if limits.per_name_overrides:
            self._names.want(limits.per_name_overrides)

    def __len__(self) -> int:
        return len(self._guests)

    def take_over(self, config: BrokerConfig) -> None:
        """Take the limits that changed; who waits for room looks again."""
        self.limits.take_over(config)
        self._room.set()
        self._names.want(self.limits.per_name_overrides)

    def _addresses_changed(self, known: Mapping[str, frozenset[str]]) -> None:
        """A host's name stands for all its addresses; an address that is named itself has its own count."""
        counts = self.limits.per_name_overrides
        self._of_names = {address: counts[name] for name, found in known.items() if name in counts for address in found}

    def close(self) -> None:
        """Look no more names up."""
        self._names.close()

    async def wait_for_room(self, listener: str, *, protected: bool) -> None:
        """Return when one more connection may be taken; a protected listener's never waits for the others'."""
        while not self._has_room(listener, protected):
            self._room.clear()
            await self._room.wait()
        now = self._now_ms()
        wait_ms = max((rate.throttle_ms(most, now) for rate, most in self._rates(listener, protected)), default=0)
        if wait_ms:
            await asyncio.sleep(min(wait_ms, self.limits.window_ms) / 1000)

    def _has_room(self, listener: str, protected: bool) -> bool:
        if self._per_listener[listener] >= self.limits.of(listener).connections_max:
            return False
        return protected or len(self._guests) < self.limits.connections_max

    def _rates(self, listener: str, protected: bool) -> list[tuple[SampledRate, int]]:
        """The rates that a connection counts for, each with what it may be at most."""
        counted = []
        own = self.limits.of(listener).creation_rate
        if own < UNLIMITED:
            fresh = SampledRate(self.limits.windows, self.limits.window_ms)
            counted.append((self._listener_rates.setdefault(listener, fresh), own))
        if not protected and self.limits.creation_rate < UNLIMITED:
            counted.append((self._rate, self.limits.creation_rate))
        return counted

    def refusal(self, host: str) -> str | None:
        """Why a connection that has just come from that address is closed at once; None: it is not."""
        limits = self.limits
        most = limits.per_ip_overrides.get(host, self._of_names.get(host, limits.per_ip_max))
        return f"{most} connections of one address are taken" if self._per_ip[host] >= most else None

    def delay_ms(self, host: str, listener: str, *, protected: bool) -> int:
        """Count a connection; for how long one that comes too soon after others of its address is kept waiting,
        to be closed then. 0: it is welcome."""
        now = self._now_ms()
        counted = [rate for rate, _ in self._rates(listener, protected)]
        for rate in counted:
            rate.record(1, now)
        quotas = self.ip_quotas()
        quota = (quotas.get(host) or quotas.get(DEFAULT_ENTITY) or {}).get(IP_QUOTA) if quotas else None
        if quota is None:
            return 0
        of_address = self._ip_rate(host, now)
        of_address.record(1, now)
        wait_ms = of_address.throttle_ms(float(quota), now)
        if wait_ms:
            for rate in (of_address, *counted):
                rate.record(-1, now)
        return min(wait_ms, self.limits.window_ms)

    def _ip_rate(self, host: str, now_ms: float) -> SampledRate:
        if len(self._ip_rates) >= ADDRESSES_SWEPT_AT:
            self._ip_rates = {ip: rate for ip, rate in self._ip_rates.items() if not rate.is_idle(now_ms)}
        return self._ip_rates.setdefault(host, SampledRate(self.limits.windows, self.limits.window_ms))

    def enter(self, guest: Guest, host: str, listener: str, *, protected: bool) -> None:
        """Take a connection in; where a protected listener's is one too many, the longest silent other one goes."""
        if protected and len(self._guests) - len(self._sent_away) >= self.limits.connections_max:
            others = (guest for guest, stay in self._guests.items() if not stay.protected)
            leaving = next((other for other in others if other not in self._sent_away), None)
            if leaving is not None:
                # It is gone when its peer has read what it is owed, or some seconds later.
                self._sent_away.add(leaving)
                leaving.close()
        self._guests[guest] = Stay(host, listener, protected)
        self._per_ip[host] += 1
        self._per_listener[listener] += 1

    def active(self, guest: Guest) -> None:
        """It has said something since the last sweep."""
        if guest in self._guests:
            self._guests[guest] = self._guests.pop(guest)

    def leave(self, guest: Guest) -> None:
        """A connection is gone."""
        self._sent_away.discard(guest)
        found = self._guests.pop(guest, None)
        if found is None:
            return
        self._per_listener[found.listener] -= 1
        self._per_ip[found.host] -= 1
        if not self._per_ip[found.host]:
            del self._per_ip[found.host]
        self._room.set()


class RequestMemory:
    """`queued.max.request.bytes`: what requests that are being read may take together.

    Granted while anything is left, so the last one may go over it by its own size, as in Kafka.
    """

    def __init__(self, bytes_max: int) -> None:
        self._left = bytes_max
        self._waiting: dict[Callable[[], None], None] = {}

    @property
    def left(self) -> int:
        return self._left

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def take(self, size: int) -> bool:
        """Grant that many bytes, or not now."""
        if self._left <= 0:
            return False
        self._left -= size
        return True

    def wait(self, retry: Callable[[], None]) -> None:
        """Call `retry` once when memory has come back."""
        self._waiting[retry] = None

    def forget(self, retry: Callable[[], None]) -> None:
        """Who waits is gone."""
        self._waiting.pop(retry, None)

    def give_back(self, size: int) -> None:
        """These bytes are free again; who waits asks again, first come first served."""
        self._left += size
        for _ in range(len(self._waiting)):
            if self._left <= 0 or not self._waiting:
                break
            retry = next(iter(self._waiting))
            del self._waiting[retry]
            retry()

"""Limits the connections of a broker, and the memory that requests take while they are received.

Rule 1: connections beyond `max.connections`, or beyond `max.connection.creation.rate` per second, stay in the kernel's
        queue until there is room. If other brokers have a listener of their own (a protected one), its connections are
        accepted all the same. Each listener has both limits again (`listener.name.<listener>.…`, else the broker's
        value), as in Kafka; these hold for other brokers too.
Rule 2: connections of one address beyond `max.connections.per.ip`, or its overrides, are closed at once. Those beyond
        the address's `connection_creation_rate` (KIP-612) are closed when their throttle time is over.
Rule 3: memory is granted for a whole request before its bytes are read, so that a request that was begun can end.
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
    """The limits of one listener: connections, and new connections per second."""

    connections_max: int = UNLIMITED
    creation_rate: int = UNLIMITED


@dataclass(slots=True)
class Limits:
    """The settings for this module. Negative `idle_ms` and `memory_bytes` mean no limit."""

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
        """Read the settings that may change while the broker runs."""
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
        """Return a listener's own limits."""
        return self.listeners.get(listener, _NO_LIMITS)


_NO_LIMITS = ListenerLimits()


def limits_from(config: BrokerConfig) -> Limits:
    """Read the limits from the broker's configuration."""
    limits = Limits(
        idle_ms=config.int("connections.max.idle.ms"),
        frame_bytes_max=config.int("socket.request.max.bytes"),
        memory_bytes=config.int("queued.max.request.bytes"),
        windows=config.int("quota.window.num"),
        window_ms=config.int("quota.window.size.seconds") * 1000,
    )
    limits.take_over(config)
    return limits


class AnyConnection(Protocol):
    """What this module needs of a connection."""

    def close(self) -> None: ...


class Admitted(NamedTuple):
    """An admitted connection: the client's address, and the listener."""

    host: str
    listener: str
    protected: bool


class Admission:
    """Counts the connections of all listeners. `now_ms` is monotonic."""

    def __init__(self, limits: Limits, now_ms: Callable[[], float]) -> None:
        self.limits = limits
        self.ip_quotas: Callable[[], Mapping[str, Quota]] = dict
        self._now_ms = now_ms
        self._admitted: dict[AnyConnection, Admitted] = {}  # the longest idle first, as of the last sweep
        self._evicted: set[AnyConnection] = set()  # those of them that were closed to make room for a protected one
        self._per_ip: Counter[str] = Counter()
        self._per_listener: Counter[str] = Counter()
        self._rate = SampledRate(limits.windows, limits.window_ms)
        self._listener_rates: dict[str, SampledRate] = {}
        self._ip_rates: dict[str, SampledRate] = {}
        self._sweep_at = ADDRESSES_SWEPT_AT
        self._room = asyncio.Event()
        self._of_names: Mapping[str, int] = {}
        self._named_quotas: dict[str, None] = {}
        self._quota_names: Mapping[str, str] = {}  # by address
        self._names = HostNames(self._addresses_changed)
        if limits.per_name_overrides:
            self._want_names()

    def __len__(self) -> int:
        return len(self._admitted)

    def take_over(self, config: BrokerConfig) -> None:
        """Read changed settings; connections that wait for room are checked again."""
        self.limits.take_over(config)
        self._room.set()
        self._want_names()

    def name_has_quota(self, host: str, *, has_quota: bool) -> None:
        """Note whether one of `ip_quotas` is of this host's name: it holds for the addresses that the name has."""
        if has_quota:
            self._named_quotas[host] = None
        else:
            self._named_quotas.pop(host, None)
        self._want_names()

    def _want_names(self) -> None:
        self._names.want([*self.limits.per_name_overrides, *self._named_quotas])

    def _addresses_changed(self, known: Mapping[str, frozenset[str]]) -> None:
        """Apply a host name's limit and quota to all its addresses. Those of an address itself take precedence."""
        counts, quotas = self.limits.per_name_overrides, self._named_quotas
        self._of_names = {address: counts[name] for name, found in known.items() if name in counts for address in found}
        self._quota_names = {address: name for name, found in known.items() if name in quotas for address in found}

    def close(self) -> None:
        """Stop looking up names."""
        self._names.close()

    async def wait_for_room(self, listener: str, *, protected: bool) -> None:
        """Return when one more connection may be accepted; a protected listener does not wait for the others."""
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
        return protected or len(self._admitted) < self.limits.connections_max

    def _rates(self, listener: str, protected: bool) -> list[tuple[SampledRate, int]]:
        """Return the rates that count this connection, each with its limit per second."""
        counted = []
        own = self.limits.of(listener).creation_rate
        if own < UNLIMITED:
            fresh = SampledRate(self.limits.windows, self.limits.window_ms)
            counted.append((self._listener_rates.setdefault(listener, fresh), own))
        if not protected and self.limits.creation_rate < UNLIMITED:
            counted.append((self._rate, self.limits.creation_rate))
        return counted

    def refusal(self, host: str) -> str | None:
        """Return why a new connection of that address is closed at once; None: it is not."""
        limits = self.limits
        most = limits.per_ip_overrides.get(host, self._of_names.get(host, limits.per_ip_max))
        return f"this address has {most} connections, the most allowed" if self._per_ip[host] >= most else None

    def delay_ms(self, host: str, listener: str, *, protected: bool) -> int:
        """Count a new connection. Return 0, or after how many milliseconds it is to be closed because its address
        exceeds its rate."""
        now = self._now_ms()
        counted = [rate for rate, _ in self._rates(listener, protected)]
        for rate in counted:
            rate.record(1, now)
        quotas = self.ip_quotas()
        quota = None
        if quotas:
            named = quotas.get(self._quota_names.get(host, ""))
            quota = (quotas.get(host) or named or quotas.get(DEFAULT_ENTITY) or {}).get(IP_QUOTA)
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
        if len(self._ip_rates) >= self._sweep_at and host not in self._ip_rates:
            self._ip_rates = {ip: rate for ip, rate in self._ip_rates.items() if not rate.is_idle(now_ms)}
            self._sweep_at = max(ADDRESSES_SWEPT_AT, 2 * len(self._ip_rates))
        return self._ip_rates.setdefault(host, SampledRate(self.limits.windows, self.limits.window_ms))

    def enter(self, connection: AnyConnection, host: str, listener: str, *, protected: bool) -> None:
        """Admit a connection. If a protected listener's is one too many, the longest idle other one is closed."""
        if protected and len(self._admitted) - len(self._evicted) >= self.limits.connections_max:
            others = (other for other, admitted in self._admitted.items() if not admitted.protected)
            leaving = next((other for other in others if other not in self._evicted), None)
            if leaving is not None:
                # It is gone when its peer has read its answers, or some seconds later.
                self._evicted.add(leaving)
                leaving.close()
        self._admitted[connection] = Admitted(host, listener, protected)
        self._per_ip[host] += 1
        self._per_listener[listener] += 1

    def active(self, connection: AnyConnection) -> None:
        """Note that the connection was used since the last sweep."""
        if connection in self._admitted:
            self._admitted[connection] = self._admitted.pop(connection)

    def leave(self, connection: AnyConnection) -> None:
        """Note that the connection is gone."""
        self._evicted.discard(connection)
        admitted = self._admitted.pop(connection, None)
        if admitted is None:
            return
        self._per_listener[admitted.listener] -= 1
        self._per_ip[admitted.host] -= 1
        if not self._per_ip[admitted.host]:
            del self._per_ip[admitted.host]
        self._room.set()


class RequestMemory:
    """The memory for requests that are being received (`queued.max.request.bytes`).

    It is granted while anything is left; so the last request may exceed the limit by its own size, as in Kafka.
    """

    def __init__(self, bytes_max: int) -> None:
        self._left = bytes_max
        self._waiting: dict[Callable[[], None], None] = {}

    @property
    def left(self) -> int:
        return self._left

    @property
    def waiting(self) -> int:
        """How many connections wait for memory."""
        return len(self._waiting)

    def take(self, size: int) -> bool:
        """Take that many bytes if any memory is left; return whether it was."""
        if self._left <= 0:
            return False
        self._left -= size
        return True

    def wait(self, retry: Callable[[], None]) -> None:
        """Call `retry` once when memory is free again."""
        self._waiting[retry] = None

    def forget(self, retry: Callable[[], None]) -> None:
        """Do not call `retry`: its connection is gone."""
        self._waiting.pop(retry, None)

    def give_back(self, size: int) -> None:
        """Free that many bytes, and call those that wait, first come first served."""
        self._left += size
        for _ in range(len(self._waiting)):
            if self._left <= 0 or not self._waiting:
                break
            retry = next(iter(self._waiting))
            del self._waiting[retry]
            retry()

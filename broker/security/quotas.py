"""Client quotas: which one applies, how much was used, how long to wait (KIP-13, 55, 124, 219, 599; facts §18).

Rule 1: the most specific quota for the user and client id applies. A quota of a user is shared by all client ids of
        that user, a quota of a client id by all users with it.
Rule 2: if nobody has a quota of a kind, that kind is None in `Quotas`, and requests do not pay for it.
Rule 3: this module only counts and computes; the server mutes connections (server/throttling.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, Protocol, TypeVar

from logyard.broker.config.broker import BrokerConfig
from logyard.broker.metadata.dynamic_configs import DEFAULT_ENTITY, DynamicConfigs
from logyard.broker.security.rates import SampledRate, TokenBucket

# The field for the throttle time is an int32 of milliseconds.
THROTTLE_MS_MAX = 2**31 - 1
# Clients choose users and client ids: above this many meters, idle ones are removed.
METERS_SWEPT_AT = 1024

UserClient = tuple[str, str]  # user, client id


class QuotaKey(str, Enum):
    """The quotas among the settings of users and clients."""

    __str__ = str.__str__

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    MUTATION = "controller_mutation_rate"


IP_QUOTA = "connection_creation_rate"


@dataclass(frozen=True, slots=True)
class Windows:
    """`quota.window.num` and `quota.window.size.seconds`, or the same of the controller's quota."""

    count: int = 11
    seconds: int = 1


class Meter(Protocol):
    """Measures the use of a quota."""

    def is_idle(self, now_ms: float) -> bool: ...


M = TypeVar("M", bound=Meter)


def holding_quota(configs: DynamicConfigs, user: str, client_id: str, key: str) -> tuple[UserClient, float] | None:
    """Return who shares the quota of this user and client id, and its limit; None: there is no limit."""
    quotas = configs.quotas()
    for entity, shared in (
        ((user, client_id), (user, client_id)),
        ((user, DEFAULT_ENTITY), (user, client_id)),
        ((user, None), (user, "")),
        ((DEFAULT_ENTITY, client_id), (user, client_id)),
        ((DEFAULT_ENTITY, DEFAULT_ENTITY), (user, client_id)),
        ((DEFAULT_ENTITY, None), (user, "")),
        ((None, client_id), ("", client_id)),
        ((None, DEFAULT_ENTITY), ("", client_id)),
    ):
        found = quotas.get(entity)
        value = found.get(key) if found is not None else None
        if value is not None:
            return shared, float(value)
    return None


class _Metered(Generic[M]):
    """The meters of one kind of quota; they are made at the first use, and removed when idle."""

    def __init__(self, configs: DynamicConfigs, key: QuotaKey, make: Callable[[], M]) -> None:
        self._configs = configs
        self._key = key
        self._make = make
        self._meters: dict[UserClient, M] = {}
        self._sweep_at = METERS_SWEPT_AT

    def find(self, user: str, client_id: str, now_ms: float) -> tuple[M, float] | None:
        held = holding_quota(self._configs, user, client_id, self._key)
        if held is None:
            return None
        shared, bound = held
        meter = self._meters.get(shared)
        if meter is None:
            if len(self._meters) >= self._sweep_at:
                self._meters = {who: m for who, m in self._meters.items() if not m.is_idle(now_ms)}
                self._sweep_at = max(METERS_SWEPT_AT, 2 * len(self._meters))
            meter = self._meters[shared] = self._make()
        return meter, bound

    def __len__(self) -> int:
        return len(self._meters)


class RateQuota:
    """A quota of units per second: bytes produced, bytes fetched, or percent of the event loop's time."""

    def __init__(self, configs: DynamicConfigs, key: QuotaKey, windows: Windows, now_ms: Callable[[], float]) -> None:
        self._windows = windows
        self._now_ms = now_ms
        self._metered = _Metered(configs, key, lambda: SampledRate(windows.count, windows.seconds * 1000))
        # Requests are throttled for one window at most, as in Kafka; bytes without such a limit.
        self._throttle_ms_max = windows.seconds * 1000 if key is QuotaKey.REQUEST else THROTTLE_MS_MAX

    @property
    def meter_count(self) -> int:
        return len(self._metered)

    def record(self, user: str, client_id: str, units: float) -> int:
        """Count `units`. Returns the throttle time in milliseconds, 0 if there is none."""
        now = self._now_ms()
        found = self._metered.find(user, client_id, now)
        if found is None:
            return 0
        rate, bound = found
        rate.record(units, now)
        return min(rate.throttle_ms(bound, now), self._throttle_ms_max)

    def take_back(self, user: str, client_id: str, units: float) -> None:
        """Subtract units that were not sent after all."""
        now = self._now_ms()
        found = self._metered.find(user, client_id, now)
        if found is not None:
            found[0].record(-units, now)

    def largest(self, user: str, client_id: str) -> float:
        """Return the most units that can be counted at once without exceeding the quota; infinite without a quota, and
        for one that is negative."""
        found = self._metered.find(user, client_id, self._now_ms())
        if found is None or found[1] < 0:
            return float("inf")
        return found[1] * (self._windows.count - 1) * self._windows.seconds


class MutationQuota:
    """The quota of partitions created and deleted per second (KIP-599). One that is negative holds nobody back."""

    def __init__(self, configs: DynamicConfigs, windows: Windows, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._metered = _Metered(configs, QuotaKey.MUTATION, lambda: TokenBucket(windows.count, windows.seconds * 1000))

    def overdrawn_ms(self, user: str, client_id: str) -> int:
        """Return how many milliseconds this client has to wait before its next change; 0: none."""
        now = self._now_ms()
        found = self._metered.find(user, client_id, now)
        if found is None or found[1] < 0:
            return 0
        return min(found[0].throttle_ms(found[1], now), THROTTLE_MS_MAX)

    def take(self, user: str, client_id: str, partitions: float) -> None:
        """Count that many partitions; a negative number takes back what was not changed after all."""
        now = self._now_ms()
        found = self._metered.find(user, client_id, now)
        if found is not None and found[1] >= 0:
            found[0].take(partitions, found[1], now)


class Quotas:
    """The client quotas by kind. A kind is None if nobody has a quota of it: check that first."""

    def __init__(
        self, configs: DynamicConfigs, windows: Windows, controller_windows: Windows, now_ms: Callable[[], float]
    ) -> None:
        self.produce: RateQuota | None = None
        self.fetch: RateQuota | None = None
        self.request: RateQuota | None = None
        self.mutation: MutationQuota | None = None
        self._configs = configs
        self._windows = windows
        self._controller_windows = controller_windows
        self._now_ms = now_ms
        configs.on_quotas(self._changed)
        self._changed()

    def _changed(self) -> None:
        """Make the kinds that have quotas now, and remove those that have none; the counts of the others stay."""
        present = {key for quota in self._configs.quotas().values() for key in quota}
        self.produce = self._rate(self.produce, QuotaKey.PRODUCE, present)
        self.fetch = self._rate(self.fetch, QuotaKey.FETCH, present)
        self.request = self._rate(self.request, QuotaKey.REQUEST, present)
        if QuotaKey.MUTATION not in present:
            self.mutation = None
        elif self.mutation is None:
            self.mutation = MutationQuota(self._configs, self._controller_windows, self._now_ms)

    def _rate(self, before: RateQuota | None, key: QuotaKey, present: set[str]) -> RateQuota | None:
        if key not in present:
            return None
        return before or RateQuota(self._configs, key, self._windows, self._now_ms)


def quotas_from(config: BrokerConfig, configs: DynamicConfigs, now_ms: Callable[[], float]) -> Quotas:
    """Return the quotas of a broker, with the windows of its configuration."""
    clients = Windows(config.int("quota.window.num"), config.int("quota.window.size.seconds"))
    controllers = Windows(config.int("controller.quota.window.num"), config.int("controller.quota.window.size.seconds"))
    return Quotas(configs, clients, controllers, now_ms)

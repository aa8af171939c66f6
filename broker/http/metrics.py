"""The broker's metrics as Prometheus text: Kafka's metric names in snake case, with the prefix `logyard_` (facts §20).

All values are read on the event loop when they are scraped. If the controller and the replicas have a gauge of the same
name, the controller's is called `logyard_controller_…`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from logyard.broker import tasks
from logyard.broker.event_loop import TimerHandle, Timers
from logyard.broker.leases.book import Purpose
from logyard.broker.leases.leases import Leases
from logyard.broker.log.store import LogStore
from logyard.broker.replication.replicas import Replicas
from logyard.broker.transactions.verification_figures import VerificationFigures

LOOK_S = 0.1

_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def snake_case(name: str) -> str:
    """`OfflinePartitionsCount` → `offline_partitions_count`."""
    return _WORD_START.sub("_", name).lower()


class ApiFigures(Protocol):
    """What the dispatcher counts for one API: server.dispatch.ApiCounter."""

    name: str
    requests: int
    errors: int
    seconds: float


class LoopPauses:
    """The longest delay of a due timer on the event loop since the last scrape."""

    def __init__(self, timers: Timers, monotonic: Callable[[], float]) -> None:
        self._timers = timers
        self._monotonic = monotonic
        self._timer: TimerHandle | None = None
        self._due = 0.0
        self._longest = 0.0

    def start(self) -> None:
        self._due = self._monotonic() + LOOK_S
        self._timer = self._timers.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self._longest = max(self._longest, self._monotonic() - self._due)
        self.start()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def take_longest(self) -> float:
        """Return the longest delay in seconds, and start again from 0."""
        longest, self._longest = self._longest, 0.0
        return longest


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the values come from; `identity` becomes the labels of `logyard_broker_info`."""

    replicas: Replicas
    controller_gauges: Callable[[], Mapping[str, int]]
    apis: Mapping[int, ApiFigures]
    store: LogStore
    leases: Leases
    pauses: LoopPauses
    identity: Mapping[str, str]
    other_gauges: Callable[[], Mapping[str, int]] = dict
    verification: VerificationFigures | None = None


class BrokerCollector(Collector):
    """Reads all metrics of a broker."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registering reads no values: the broker may not be up yet."""
        return ()

    def collect(self) -> Iterator[Metric]:
        sources = self._sources
        yield InfoMetricFamily("logyard_broker", "Which broker this is", dict(sources.identity))
        gauges = sources.replicas.gauges()
        yield from _gauges(gauges, "of this broker's replicas")
        controller = {snake_case(name): value for name, value in sources.controller_gauges().items()}
        renamed = {f"controller_{name}" if name in gauges else name: value for name, value in controller.items()}
        yield from _gauges(renamed, "of the controller, 0 on a broker that is not")
        for name, value in asdict(sources.replicas.counters).items():
            yield CounterMetricFamily(f"logyard_{name}", "Since the broker started", value=value)
        yield from _apis(sources.apis.values())
        yield from _logs(sources.store)
        yield _leases(sources.leases)
        yield from _gauges(sources.other_gauges(), "of this broker")
        if sources.verification is not None:
            yield from _verification(sources.verification)
        yield _tasks()
        yield GaugeMetricFamily(
            "logyard_event_loop_longest_pause_seconds",
            "The longest time the event loop was late since the last scrape",
            value=sources.pauses.take_longest(),
        )


def _gauges(figures: Mapping[str, int], whose: str) -> Iterator[Metric]:
    for name, value in figures.items():
        yield GaugeMetricFamily(f"logyard_{name}", f"{name.replace('_', ' ').capitalize()} {whose}", value=value)


def _apis(apis: Iterable[ApiFigures]) -> Iterator[Metric]:
    requests = CounterMetricFamily("logyard_requests", "Requests by API", labels=["api"])
    errors = CounterMetricFamily("logyard_request_errors", "Requests refused as a whole, by API", labels=["api"])
    seconds = CounterMetricFamily("logyard_request_loop_seconds", "Seconds on the event loop, by API", labels=["api"])
    for api in apis:
        requests.add_metric([api.name], api.requests)
        errors.add_metric([api.name], api.errors)
        seconds.add_metric([api.name], api.seconds)
    yield from (requests, errors, seconds)


def _logs(store: LogStore) -> Iterator[Metric]:
    sizes: dict[str, int] = {}
    segments = lost = 0
    for log in store.logs.all_current():
        lost += len(log.segments.lost_tails)
        sizes[log.tp.topic] = sizes.get(log.tp.topic, 0) + log.size
        segments += len(log.segments)
    by_topic = GaugeMetricFamily("logyard_log_size_bytes", "Bytes of this broker's logs, by topic", labels=["topic"])
    for topic, size in sizes.items():
        by_topic.add_metric([topic], size)
    yield by_topic
    yield GaugeMetricFamily("logyard_log_segments", "Segments of all logs", value=segments)
    yield GaugeMetricFamily("logyard_log_lost_tails", "Closed segments found to end inside a batch", value=lost)
    online = store.online_directories
    directories = GaugeMetricFamily("logyard_log_directory_online", "1 while a log directory works", labels=["path"])
    for path in store.log_dirs:
        directories.add_metric([path], path in online)
    yield directories


def _leases(leases: Leases) -> Metric:
    family = GaugeMetricFamily("logyard_segment_leases", "Living segment leases, by purpose", labels=["purpose"])
    for purpose in Purpose:
        family.add_metric([purpose.value], sum(lease.living and lease.purpose is purpose for lease in leases.book))
    return family


def _verification(figures: VerificationFigures) -> Iterator[Metric]:
    """VerificationFailureRate as a counter, VerificationTimeMs as a histogram."""
    yield CounterMetricFamily(
        "logyard_verification_failures", "Partitions whose transaction was not verified", value=figures.failures
    )
    yield HistogramMetricFamily(
        "logyard_verification_time_ms",
        "Milliseconds until a coordinator had verified a transaction",
        buckets=list(figures.cumulative()),
        sum_value=figures.sum_ms,
    )


def _tasks() -> Metric:
    family = CounterMetricFamily(
        "logyard_task_failures", "What a task or a callback did not expect, by its name", labels=["task"]
    )
    for name, count in tasks.failures.items():
        family.add_metric([name], count)
    return family


class Metrics:
    """A registry of this broker alone: tests run several brokers in one process."""

    def __init__(self, sources: Sources) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(BrokerCollector(sources))

    def text(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return generate_latest(self._registry)

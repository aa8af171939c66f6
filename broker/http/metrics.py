"""The broker's metrics as Prometheus text: Kafka's metric names in snake case, with the prefix `logyard_` (facts §20).

All values are read on the event loop when they are scraped, in turns where there is one for each partition; the text is
made in a thread. If the controller and the replicas have a gauge of the same
name, the controller's is called `logyard_controller_…`.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
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
from logyard.broker.portions import portions
from logyard.broker.replication.replicas import Replicas
from logyard.broker.replication.settings import Counters
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
    controller_gauges: Callable[[], Awaitable[Mapping[str, int]]]
    apis: Mapping[int, ApiFigures]
    store: LogStore
    leases: Leases
    pauses: LoopPauses
    identity: Mapping[str, str]
    other_gauges: Callable[[], Mapping[str, int]] = dict
    verification: VerificationFigures | None = None


async def read(sources: Sources) -> list[Metric]:
    """Read all metrics of a broker."""
    gauges = await sources.replicas.gauges()
    controller = {snake_case(name): value for name, value in (await sources.controller_gauges()).items()}
    renamed = {f"controller_{name}" if name in gauges else name: value for name, value in controller.items()}
    logs = await _logs(sources.store)
    return [
        InfoMetricFamily("logyard_broker", "Which broker this is", dict(sources.identity)),
        *_gauges(gauges, "of this broker's replicas"),
        *_gauges(renamed, "of the controller, 0 on a broker that is not"),
        *_counters(sources.replicas.counters),
        *_apis(sources.apis.values()),
        *logs,
        _leases(sources.leases),
        *_gauges(sources.other_gauges(), "of this broker"),
        *(() if sources.verification is None else _verification(sources.verification)),
        _tasks(),
        GaugeMetricFamily(
            "logyard_event_loop_longest_pause_seconds",
            "The longest time the event loop was late since the last scrape",
            value=sources.pauses.take_longest(),
        ),
    ]


def _counters(counters: Counters) -> Iterator[Metric]:
    for name, value in asdict(counters).items():
        yield CounterMetricFamily(f"logyard_{name}", "Since the broker started", value=value)


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


async def _logs(store: LogStore) -> list[Metric]:
    sizes = Counter[str]()
    segments = lost = 0
    async for logs in portions(store.logs.all_current()):
        for log in logs:
            lost += len(log.segments.lost_tails)
            sizes[log.tp.topic] += log.size
            segments += len(log.segments)
    by_topic = GaugeMetricFamily("logyard_log_size_bytes", "Bytes of this broker's logs, by topic", labels=["topic"])
    async for topics in portions(sizes.items()):
        for topic, size in topics:
            by_topic.add_metric([topic], size)
    online = store.online_directories
    directories = GaugeMetricFamily("logyard_log_directory_online", "1 while a log directory works", labels=["path"])
    for path in store.log_dirs:
        directories.add_metric([path], path in online)
    return [
        by_topic,
        GaugeMetricFamily("logyard_log_segments", "Segments of all logs", value=segments),
        GaugeMetricFamily("logyard_log_lost_tails", "Closed segments found to end inside a batch", value=lost),
        directories,
    ]


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


class _Read(Collector):
    """What was read, for the library that makes text of it."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self.metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self.metrics


class Metrics:
    """One scrape after the other: as many as want to may ask at once."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._one_at_a_time = asyncio.Lock()

    async def text(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        async with self._one_at_a_time:
            registry = CollectorRegistry(auto_describe=False)
            registry.register(_Read(await read(self._sources)))
            return await asyncio.to_thread(generate_latest, registry)

"""The same work on two clusters in one run, alternating: medians, and their ratio.

A row is a function that does one piece of work on a cluster and returns what it measured. One that yields in between
lets the other cluster do its part, so that what is compared is seconds apart: a machine's pace changes within a minute.
More is better for rates, less for times and costs; a ratio above 1 is in our favour either way.
"""

import math
import os
import statistics
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from tests.benchmarks.harness import process_cpu_s
from tests.support.real_cluster import RealCluster

Measured = Mapping[str, float]
Steps = Generator[None, None, Measured]
Work = Callable[[RealCluster], Measured | Steps]

# What a figure's unit says about its direction.
MORE_IS_BETTER = ("MB/s", "/s")


@dataclass(frozen=True, slots=True)
class Row:
    """One piece of work. `rounds` counted runs on each cluster follow one that is not counted."""

    name: str
    work: Work
    rounds: int = 5


@dataclass(frozen=True, slots=True)
class Outcome:
    """One figure of one row: both medians, all runs, and the ratio in our favour."""

    row: str
    figure: str
    ours: float
    kafka: float
    ratio: float
    runs_of_ours: list[float]
    runs_of_kafka: list[float]
    load: float
    """The machine's load (mean of one minute) when the row had run: 2 to 4 are its own on two cores."""
    sends_by: str
    """How the system decides what a connection may send: rates over loopback depend on it."""

    def fields(self) -> dict[str, object]:
        return asdict(self)


def compare(row: Row, ours: RealCluster, kafka: RealCluster) -> list[Outcome]:
    """Warm both up, then run them in turn, the one that goes first changing from round to round."""
    clusters = {"ours": ours, "kafka": kafka}
    runs: dict[str, list[Measured]] = {"ours": [], "kafka": []}
    for number in range(row.rounds + 1):
        names = ("ours", "kafka") if number % 2 else ("kafka", "ours")
        measured = in_turn(row.work(clusters[name]) for name in names)
        for name, figures in zip(names, measured, strict=True) if number else ():
            runs[name].append(figures)
    outcomes = []
    for figure in runs["ours"][0]:
        mine, theirs = ([run[figure] for run in runs[name]] for name in ("ours", "kafka"))
        a, b = statistics.median(mine), statistics.median(theirs)
        more, less = (a, b) if figure.endswith(MORE_IS_BETTER) else (b, a)
        ratio = more / less if less else math.nan  # less than the clock can tell
        load = round(os.getloadavg()[0], 1)
        outcomes.append(Outcome(row.name, figure, a, b, ratio, mine, theirs, load, congestion_control()))
    return outcomes


def in_turn(works: Iterable[Measured | Steps]) -> list[Measured]:
    """What each piece of work returns; those that yield go on a step each, in turn, until all have ended."""
    ended: dict[int, Measured] = {}
    going_on: dict[int, Steps] = {}
    for number, work in enumerate(works):
        if isinstance(work, Mapping):
            ended[number] = work
        else:
            going_on[number] = work
    try:
        while going_on:
            for number, steps in list(going_on.items()):
                try:
                    next(steps)
                except StopIteration as end:
                    ended[number] = end.value
                    del going_on[number]
    finally:
        for steps in going_on.values():  # what another one's failure has left in the middle
            steps.close()
    return [ended[number] for number in sorted(ended)]


def congestion_control() -> str:
    """What new connections of this machine send by: `cubic` is Linux's default."""
    return Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()


def broker_processes(cluster: RealCluster) -> list[psutil.Process]:
    return [psutil.Process(broker["pid"]) for broker in cluster.description["brokers"] if broker["pid"]]


def cpu_s(cluster: RealCluster) -> float:
    """CPU seconds that all brokers have used so far: user and system, threads that ended included."""
    return sum(process_cpu_s(process.pid) for process in broker_processes(cluster))


def resident_mb(cluster: RealCluster) -> float:
    held: int = sum(process.memory_info().rss for process in broker_processes(cluster))
    return held / 1e6


def table(outcomes: list[Outcome]) -> str:
    """A Markdown table, one line a figure, as docs/beside-kafka.md has it; below it the loads it was made under."""
    heads = ("work", "figure", "ours", "Kafka", "ratio", "runs of ours", "runs of Kafka's")
    lines = [f"| {' | '.join(heads)} |", "|---|---|---:|---:|---:|---|---|"]
    before = ""
    for o in outcomes:
        named = o.row if o.row != before else ""
        cells = (named, o.figure, number(o.ours), number(o.kafka), f"{o.ratio:.2f}", _range(o.runs_of_ours))
        lines.append(f"| {' | '.join((*cells, _range(o.runs_of_kafka)))} |")
        before = o.row
    loads = [o.load for o in outcomes]
    ways = ", ".join(sorted({o.sends_by for o in outcomes}))
    load = f"Load of the machine when the rows had run: {min(loads):g} to {max(loads):g}; it sends by {ways}."
    return "\n".join([*lines, "", load])


def _range(runs: list[float]) -> str:
    return f"{number(min(runs))} – {number(max(runs))}"


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"

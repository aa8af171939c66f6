"""The steps of the demo's main job: each does its work through Airflow, then checks it by other means.

A step returns the figures for the report, and raises LocalError if a check fails.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pandas as pd

from logyard.local.demo import checks, cluster_view, exported, loader
from logyard.local.demo.dataset import Flights
from logyard.local.demo.progress import Display
from logyard.local.demo.report import Figure
from logyard.local.demo.site import Site
from logyard.local.demo.traffic import Traffic
from logyard.local.errors import LocalError

FLIGHTS, UNASSIGNED = "flights", "flights-unassigned"
TOPICS = (FLIGHTS, UNASSIGNED)
PARTITIONS, REPLICAS = 6, 3
SEGMENT_BYTES = 256 * 1024
CONFIGS: Mapping[str, Mapping[str, str]] = {
    FLIGHTS: {
        "cleanup.policy": "compact",
        "segment.bytes": str(SEGMENT_BYTES),
        "min.insync.replicas": "2",
        # So the broker's own cleaner leaves the topic to the Spark job, which this demonstrates.
        "min.cleanable.dirty.ratio": "1",
    },
    UNASSIGNED: {"cleanup.policy": "delete", "segment.bytes": str(SEGMENT_BYTES), "min.insync.replicas": "2"},
}

Figures = dict[str, Figure]


class Dags(Protocol):
    """Runs DAGs as a user does in the UI."""

    def run_all(self, runs: Sequence[tuple[str, Mapping[str, Any]]]) -> list[dict[str, Any]]:
        """Start these (DAG id, conf) together, and wait for all. Returns their tasks' results by task id.

        Raises LocalError with the failed task and the last lines of its log.
        """
        ...


@dataclass(slots=True)
class Yard:
    """What the steps share. `expected[topic]` has the records that the topic must have, with their offsets."""

    site: Site
    dags: Dags
    display: Display
    flights: Flights
    expected: dict[str, pd.DataFrame] = field(default_factory=dict)
    traffic: Traffic | None = None

    @property
    def reach(self) -> loader.Reach:
        return self.site.reach

    def run(self, dag: str, **conf: Any) -> dict[str, Any]:
        """Run one DAG. Returns its tasks' results by task id."""
        self.display.note(f"DAG {dag}")
        return self.dags.run_all([(dag, conf)])[0]


@dataclass(frozen=True, slots=True)
class Step:
    """One step: its name in the report's JSON, its title, and the function that does it."""

    name: str
    title: str
    do: Callable[[Yard], Figures]


def create(yard: Yard) -> Figures:
    """Create both topics, by two runs of one DAG at the same time."""
    yard.display.note("DAG logyard_create_topic, twice")
    confs = [
        {"topic": topic, "partitions": PARTITIONS, "replication_factor": REPLICAS, "configs": dict(CONFIGS[topic])}
        for topic in TOPICS
    ]
    yard.dags.run_all([("logyard_create_topic", conf) for conf in confs])
    view = cluster_view.look(yard.reach)
    for topic in TOPICS:
        found = view.of(topic)
        if len(found) != PARTITIONS or any(len(p.replicas) != REPLICAS for p in found.values()):
            raise LocalError(f"{topic} has not {PARTITIONS} partitions of {REPLICAS} replicas: {found}")
    _require_health(view)
    return {"topics": len(TOPICS), "partitions": len(TOPICS) * PARTITIONS, "replicas_of_each": REPLICAS}


def load(yard: Yard) -> Figures:
    """Send all flights with a stock client and acks=all, and read them with another."""
    keyed, unassigned = yard.flights.keyed, yard.flights.unassigned
    yard.display.note(f"{len(keyed):,} events to {FLIGHTS}, acks=all")
    acknowledged = loader.load(yard.reach, FLIGHTS, keyed, yard.display.advance)
    yard.display.note(f"{len(unassigned):,} events without a key")
    refused = loader.count_refused(yard.reach, FLIGHTS, unassigned)
    if refused != len(unassigned):
        raise LocalError(f"{FLIGHTS} refused {refused} of {len(unassigned)} events without a key, not all")
    others = loader.load_unkeyed(yard.reach, UNASSIGNED, unassigned)
    yard.expected = {
        FLIGHTS: checks.acknowledged_table(acknowledged, keyed.keys, keyed.values),
        UNASSIGNED: checks.acknowledged_table(others, None, unassigned),
    }
    _require_content(yard, TOPICS)
    return {
        "events": len(keyed),
        "keys": len(set(keyed.keys)),
        "without_key_refused": refused,
        "events_unassigned": len(unassigned),
        "bytes_of_events": sum(map(len, keyed.values)) + sum(map(len, unassigned)),
        "bytes_on_disk": sum(cluster_view.bytes_of(yard.site.segments(topic)) for topic in TOPICS),
    }


def audit(yard: Yard) -> Figures:
    """Audit all replicas with Spark; each must have as many records as were acknowledged."""
    summary = result(yard.run("logyard_audit_replicas", topics=list(TOPICS)), "verdict")
    records = sum(len(yard.expected[topic]) for topic in TOPICS)
    replicas = sum(len(p.replicas) for p in cluster_view.look(yard.reach).partitions.values())
    if summary["verdict"] != "ok":
        raise LocalError(f"the audit says {summary['verdict']}: {summary['first_findings'][:1]}")
    if summary["records"] != records * REPLICAS:
        raise LocalError(f"the audit saw {summary['records']} records in all replicas, not {records * REPLICAS}")
    names = ("replicas", "segments", "batches", "records", "bytes")
    return {"verdict": summary["verdict"], "replicas_known": replicas, **{name: summary[name] for name in names}}


def compact(yard: Yard) -> Figures:
    """Compact with Spark while the brokers run; then compare what a stock consumer reads with what pandas expects."""
    before = yard.site.segments(FLIGHTS)
    ends = cluster_view.compactable_ends(before)
    sent = yard.expected[FLIGHTS]
    # `force`: also if the topic is not dirty enough for its own settings.
    summary = result(
        yard.run("logyard_compact_segments", topics=[FLIGHTS], options={"force": True}), "replicas_compacted"
    )
    if summary["replicas_compacted"] != PARTITIONS * REPLICAS:
        raise LocalError(f"{summary['replicas_compacted']} replicas were compacted, not {PARTITIONS * REPLICAS}")
    yard.expected[FLIGHTS] = checks.expected_after_compaction(sent, ends)
    _require_content(yard, [FLIGHTS])
    kept = yard.expected[FLIGHTS]
    active = int((kept["offset"] >= kept["partition"].map(ends)).sum())
    return {
        "records_before": len(sent),
        "records_after": len(kept),
        "in_active_segments": active,
        "bytes_before": cluster_view.bytes_of(before),
        "bytes_after": cluster_view.bytes_of(yard.site.segments(FLIGHTS)),
    }


def export(yard: Yard) -> Figures:
    """Export to Parquet, twice; the second run must have nothing to do."""
    destination = yard.site.destination
    once = result(yard.run("logyard_export_segments", topics=[FLIGHTS], destination=destination), "rows")
    first = exported.read(yard.site.exported())
    exported.require(yard.expected[FLIGHTS], first)
    yard.display.note("again: nothing may be exported twice")
    again = result(yard.run("logyard_export_segments", topics=[FLIGHTS], destination=destination), "rows")
    folder = yard.site.exported()
    second = exported.read(folder)
    if again["rows"] or len(second) != len(first):
        raise LocalError(f"the second export brought {again['rows']} rows, {len(second) - len(first)} of them twice")
    return {
        "rows": once["rows"],
        "rows_of_second_run": again["rows"],
        "sha256": checks.checksum(first),
        "bytes_of_parquet": sum(path.stat().st_size for path in folder.rglob("*.parquet")),
    }


def reassign(yard: Yard) -> Figures:
    """Move all replicas off one broker, then back, while a producer sends."""
    yard.traffic = Traffic(yard.reach, UNASSIGNED, yard.flights.unassigned)
    yard.traffic.start()
    before = cluster_view.look(yard.reach)
    # Not the controller, which the next step kills: so two brokers are tested.
    drained = min(broker for broker in before.brokers if broker != before.controller)
    led = sum(before.partitions[topic, p].leader == drained for topic in TOPICS for p in range(PARTITIONS))
    held = sum(cluster_view.bytes_of(yard.site.segments(topic), drained) for topic in TOPICS)
    fewer = {"drain": [drained], "replication_factor": REPLICAS - 1}
    yard.run("logyard_reassign_replicas", topics=list(TOPICS), approve=False, **fewer)
    empty = cluster_view.look(yard.reach)
    still = [tp for tp, p in empty.partitions.items() if tp[0] in TOPICS and drained in p.replicas]
    if still:
        raise LocalError(f"broker {drained} was to be emptied and still has {still}")
    yard.display.note(f"broker {drained} is empty; back to {REPLICAS} replicas")
    yard.run("logyard_reassign_replicas", topics=list(TOPICS), approve=False, replication_factor=REPLICAS)
    after = cluster_view.look(yard.reach)
    _require_health(after)
    again = sum(after.partitions[topic, p].leader == drained for topic in TOPICS for p in range(PARTITIONS))
    return {
        "broker": drained,
        "replicas_moved_off": len(TOPICS) * PARTITIONS,
        "leaders_moved_off": led,
        "bytes_moved_off": held,
        "leaders_after_return": again,
    }


def recover(yard: Yard) -> Figures:
    """Kill the controller's process with KILL; Airflow recovers the controller and starts the broker."""
    controller, epoch_before = yard.site.controller()
    if controller is None:
        raise LocalError("the cluster has no controller to kill")
    yard.site.kill(controller)
    yard.display.note(f"broker {controller} was controller and is dead; DAG logyard_recover_controller")
    yard.dags.run_all([("logyard_recover_controller", {"epoch_before": epoch_before, "controller_before": controller})])
    yard.site.await_restart()
    _, epoch_after = yard.site.controller()
    if epoch_after <= epoch_before:
        raise LocalError(f"the controller epoch is {epoch_after} and was {epoch_before}: it must grow")
    view = cluster_view.look(yard.reach)
    _require_health(view)
    if controller not in view.brokers:
        raise LocalError(f"broker {controller} did not come back")
    return {
        "controller_killed": controller,
        "controller_now": view.controller,
        "epoch_before": epoch_before,
        "epoch_after": epoch_after,
        "partitions_led": len(view.partitions),
    }


def audit_again(yard: Yard) -> Figures:
    """Check that no acknowledged event is lost: neither those loaded, nor those sent while brokers moved and died."""
    if yard.traffic is None:
        raise LocalError("nothing was sent while brokers moved and died")
    acknowledged, values = yard.traffic.end()
    yard.traffic = None
    more = checks.acknowledged_table(acknowledged, None, values)
    both = pd.concat([yard.expected[UNASSIGNED], more])
    yard.expected[UNASSIGNED] = both.sort_values(checks.PLACE, ignore_index=True)
    _require_content(yard, TOPICS)
    return {"events_sent_meanwhile": len(values), "lost": 0, **audit(yard)}


DAGS = (
    "logyard_create_topic",
    "logyard_audit_replicas",
    "logyard_compact_segments",
    "logyard_export_segments",
    "logyard_reassign_replicas",
    "logyard_recover_controller",
)

STEPS = (
    Step("create", "create topics", create),
    Step("load", "load 336,776 flights", load),
    Step("audit", "audit all replicas with Spark", audit),
    Step("compact", "compact with Spark under live brokers", compact),
    Step("export", "export to Parquet with Spark, twice", export),
    Step("reassign", "move a broker's leadership and data", reassign),
    Step("recover", "kill -9 the controller and recover", recover),
    Step("audit_again", "audit again, nothing is lost", audit_again),
)


def result(returned: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return the result of the task whose result has `key`. Raises LocalError if there is none."""
    for value in returned.values():
        if isinstance(value, dict) and key in value:
            return value
    raise LocalError(f"no task returned {key}: {sorted(returned)}")


def _require_content(yard: Yard, topics: Sequence[str]) -> None:
    """Raise LocalError if a stock consumer does not read exactly the expected records."""
    for topic in topics:
        yard.display.note(f"reading {topic} with a stock consumer")
        difference = checks.compare(yard.expected[topic], checks.read_topic(yard.reach, topic))
        if difference:
            raise LocalError(f"{topic} does not hold what it must: {difference}")


def _require_health(view: cluster_view.View) -> None:
    if view.unled() or view.under_replicated():
        raise LocalError(f"without leader: {view.unled()}; not in sync: {view.under_replicated()}")

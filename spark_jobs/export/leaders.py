"""Leases on the leaders' replicas that an export reads: renewed by the driver while it runs, and taken again if one is
lost."""

import argparse
import time
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from typing import Any

from logyard.broker.errors import LogyardError
from logyard.broker.model import TopicPartition
from logyard.spark_jobs import cluster as clusters
from logyard.spark_jobs.command import say
from logyard.spark_jobs.errors import JobFailed
from logyard.spark_jobs.export.failures import FailedPartitions
from logyard.spark_jobs.leases.client import Lease, end_run
from logyard.spark_jobs.leases.heartbeats import Heartbeats
from logyard.spark_jobs.segments.replicas import Replica, of_leased

# A partition is given up after its lease was lost this many times in a row.
ATTEMPTS = 3
# How long to wait for the election of a leader, and how long between attempts.
ELECTION_S, PAUSE_S = 60.0, 2.0


class LeaseLost(JobFailed):
    """A lease was lost again and again; the text says which and why."""


class Leaders:
    """Leases on the leader of every partition of some topics, for the duration of a `with` block."""

    def __init__(self, arguments: argparse.Namespace, run_id: str, purpose: str) -> None:
        self._arguments, self._run_id, self._purpose = arguments, run_id, purpose
        self._leases: list[Lease] = []
        self._beats = Heartbeats(self._leases, arguments.lease_ttl_s * 1000)
        self._stack = ExitStack()
        self._attempts = 0

    def __enter__(self) -> "Leaders":
        self._stack.enter_context(self._beats)
        self._stack.callback(end_run, self._leases, f"the {self._purpose} is over")
        return self

    def __exit__(self, *exc: Any) -> None:
        self._stack.close()

    def take(self, failed: FailedPartitions) -> list[Replica]:
        """Lease the leader of every partition; those that cannot be leased, and topics that do not exist, are given
        up."""
        cluster = clusters.connect(self._arguments)
        replicas = []
        tps = []
        for topic in dict.fromkeys(self._arguments.topic):
            try:
                tps += [tp for tp, _ in cluster.partitions([topic])]
            except JobFailed as error:
                failed.give_up_topic(topic, error)
        for tp in tps:
            lease = failed.attempt(tp, partial(cluster.lease_leader, tp, self._run_id, self._purpose))
            if lease is not None:
                self._leases.append(lease)
                replicas.append(failed.attempt(tp, partial(of_leased, lease)))
        return [replica for replica in replicas if replica is not None]

    def lost_leases(self, *, failed: bool = False) -> dict[TopicPartition, str]:
        """Renew every lease; returns the partitions whose lease is lost, and why.

        :param failed: a read under these leases failed, so a lease whose broker does not answer counts as lost.
        """
        self._beats.beat()
        gone = dict(self._beats.lost)
        if failed:
            gone |= self._beats.unanswered()
        return {lease.tp: gone[lease.lease_id] for lease in self._leases if lease.lease_id in gone}

    def reset_attempts(self) -> None:
        """Forget earlier losses, after a piece was written under the current leases."""
        self._attempts = 0

    def take_again(self, lost: dict[TopicPartition, str], failed: FailedPartitions) -> list[Replica]:
        """Lease the current leaders of these partitions; the rest of them has to be planned anew.

        Partitions that cannot be leased, or whose lease was lost too often in a row, are given up.
        """
        self._leases[:] = [lease for lease in self._leases if lease.tp not in lost]
        tp, reason = next(iter(lost.items()))
        self._attempts += 1
        if self._attempts > ATTEMPTS:
            for tp, reason in lost.items():
                text = f"{tp}: its lease was lost {self._attempts} times in a row: {reason}"
                failed.give_up(tp, LeaseLost(text))
            self._attempts = 0
            return []
        say(f"{self._purpose}: {len(lost)} leases were lost and are taken again ({tp}: {reason})")
        replicas = (failed.attempt(lease.tp, partial(of_leased, lease)) for lease in self._take_soon(lost, failed))
        return [replica for replica in replicas if replica is not None]

    def _take_soon(self, tps: Iterable[TopicPartition], failed: FailedPartitions) -> list[Lease]:
        """Lease these partitions, waiting up to ELECTION_S for a leader to be elected."""
        deadline = time.monotonic() + ELECTION_S
        left, taken = list(tps), list[Lease]()
        while True:
            refused: dict[TopicPartition, LogyardError] = {}
            try:
                cluster = clusters.connect(self._arguments)
            except LogyardError as error:
                refused = dict.fromkeys(left, error)
            for tp in [] if refused else left:
                try:
                    taken.append(cluster.lease_leader(tp, self._run_id, self._purpose))
                    self._leases.append(taken[-1])
                except LogyardError as error:
                    refused[tp] = error
            if refused and time.monotonic() < deadline:
                left = list(refused)
                time.sleep(PAUSE_S)
                continue
            for tp, why in refused.items():
                failed.give_up(tp, why)
            return taken

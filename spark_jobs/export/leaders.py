"""The leaders' replicas that a job reads under leases: kept alive from the driver for as long as it runs, and taken
again where one is lost."""

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
from logyard.spark_jobs.leases.client import Lease, end_leases
from logyard.spark_jobs.leases.heartbeats import Heartbeats
from logyard.spark_jobs.segments.replicas import Replica, of_leased

# A partition whose lease is lost this often in a row is given up.
ATTEMPTS = 3
# How long an election is waited for, and how long between looks.
ELECTION_S, PAUSE_S = 60.0, 2.0


class LeaseLost(JobFailed):
    """A lease was lost again and again; the text says which and why."""


class Leaders:
    """Leases on the leader of every partition of some topics, from `with` to its end."""

    def __init__(self, arguments: argparse.Namespace, run_id: str, purpose: str) -> None:
        self._arguments, self._run_id, self._purpose = arguments, run_id, purpose
        self._leases: list[Lease] = []
        self._beats = Heartbeats(self._leases, arguments.lease_ttl_s * 1000)
        self._stack = ExitStack()
        self._attempts = 0

    def __enter__(self) -> "Leaders":
        self._stack.enter_context(self._beats)
        self._stack.callback(end_leases, self._leases, f"the {self._purpose} is over")
        return self

    def __exit__(self, *exc: Any) -> None:
        self._stack.close()

    def take(self, failed: FailedPartitions) -> list[Replica]:
        """Lease the leader of every partition; one that cannot be had is noted. Raises JobFailed."""
        cluster = clusters.connect(self._arguments)
        replicas = []
        for tp, _ in cluster.partitions(self._arguments.topic):
            lease = failed.attempt(tp, partial(cluster.lease_leader, tp, self._run_id, self._purpose))
            if lease is not None:
                self._leases.append(lease)
                replicas.append(failed.attempt(tp, partial(of_leased, lease)))
        return [replica for replica in replicas if replica is not None]

    def lost_leases(self, *, failed: bool = False) -> dict[TopicPartition, str]:
        """Ask for every lease; returns the partitions whose lease is lost, and why.

        :param failed: something that was read under them failed: then a broker that does not answer counts as well.
        """
        self._beats.beat()
        gone = dict(self._beats.lost)
        if failed:
            gone |= {lease_id: reason for lease_id, (_, reason) in self._beats.silent.items()}
        return {lease.tp: gone[lease.lease_id] for lease in self._leases if lease.lease_id in gone}

    def reset_attempts(self) -> None:
        """Something was done under the leases as they are: those lost before do not count any more."""
        self._attempts = 0

    def take_again(self, lost: dict[TopicPartition, str], failed: FailedPartitions) -> list[Replica]:
        """Lease the leaders of these partitions anew, whoever they are by now: what is read of them has to be planned
        anew. Those that cannot be had, or were lost too often in a row, are noted."""
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
        """Lease these, waiting for a leader that is about to be elected."""
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

"""The leaders' replicas that a job reads under leases: kept alive from the driver for as long as it runs, and taken
again where one is lost."""

import argparse
from contextlib import ExitStack
from typing import Any

from logyard.broker.model import TopicPartition
from logyard.spark_jobs import cluster as clusters
from logyard.spark_jobs.leases import Heartbeats, Lease, end_leases
from logyard.spark_jobs.outcome import say
from logyard.spark_jobs.replicas import Replica, of_leased
from logyard.spark_jobs.session import JobFailed

# A partition whose lease is lost this often in a row is given up.
ATTEMPTS = 3


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

    def take(self) -> list[Replica]:
        """Lease the leader of every partition; raises JobFailed."""
        cluster = clusters.connect(self._arguments)
        for tp, _ in cluster.partitions(self._arguments.topic):
            self._leases.append(cluster.lease_leader(tp, self._run_id, self._purpose))
        return [of_leased(lease) for lease in self._leases]

    def lost(self) -> dict[TopicPartition, str]:
        """Ask for every lease; returns the partitions whose lease is lost, and why."""
        self._beats.beat()
        gone = self._beats.lost
        return {TopicPartition(x.topic, x.partition): gone[x.lease_id] for x in self._leases if x.lease_id in gone}

    def went_well(self) -> None:
        """Something was done under the leases as they are: those lost before do not count any more."""
        self._attempts = 0

    def take_again(self, lost: dict[TopicPartition, str]) -> list[Replica]:
        """Lease the leaders of these partitions anew, whoever they are by now: what is read of them has to be planned
        anew. Raises LeaseLost after some attempts in a row, JobFailed."""
        tp, reason = next(iter(lost.items()))
        self._attempts += 1
        if self._attempts > ATTEMPTS:
            raise LeaseLost(f"{tp}: its lease was lost {self._attempts} times in a row: {reason}")
        say(f"{self._purpose}: {len(lost)} leases were lost and are taken again ({tp}: {reason})")
        cluster = clusters.connect(self._arguments)
        again = [cluster.lease_leader(tp, self._run_id, self._purpose) for tp in lost]
        kept = [x for x in self._leases if TopicPartition(x.topic, x.partition) not in lost]
        self._leases[:] = kept + again
        return [of_leased(lease) for lease in again]

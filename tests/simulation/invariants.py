"""The rules of facts §23: those of ZooKeeper are checked at every write, those of the brokers after every step."""

from itertools import pairwise, zip_longest

from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.znodes import configs
from tests.simulation.broker_rules import BrokerRules
from tests.simulation.cluster import Cluster
from tests.simulation.contents import Batch, batches
from tests.simulation.ledger import BrokenPromise
from tests.simulation.machine import Machine
from tests.simulation.zookeeper_rules import ZooKeeperRules


class Rules:
    """All of them, and whether the cluster has come to rest."""

    def __init__(self, cluster: Cluster, *, may_lose: bool = False, leaders_write: bool = False) -> None:
        """`may_lose`: exposed records may be lost; replicas must agree at rest all the same.

        `leaders_write`: leaders change their ISR in the state znode themselves.
        """
        self._cluster = cluster
        self.zookeeper = ZooKeeperRules(cluster, leaders_write=leaders_write)
        self.brokers = BrokerRules(cluster, self.zookeeper, may_lose=may_lose)

    def check(self, *, whole: bool = False) -> None:
        self.zookeeper.check()
        self.brokers.check(whole=whole)
        if self._cluster.trace.mistakes:
            raise BrokenPromise(self._cluster.trace.mistakes[0])

    def strays(self) -> list[str]:
        """Replicas that nobody counts on: as in Kafka, their deletion was lost with the controller that wanted it."""
        found = []
        for born, place, _ in self.zookeeper.partitions():
            found += [f"{born} on {b}" for b in self.brokers.ends(born) if b not in place.replicas]
        return found

    def compare_replicas(self) -> None:
        """Replicas at rest hold the same below the smaller of their high watermarks."""
        for born, _, _ in self.zookeeper.partitions():
            held: list[tuple[Machine, PartitionLog, list[Batch]]] = []
            for machine in self._cluster.machines.values():
                partition = (
                    machine.components.replicas.hosted.partitions.get(born.tp)
                    if machine.components is not None
                    else None
                )
                if partition is None or partition.log is None or machine.id not in partition.replicas:
                    continue
                log = partition.log
                held.append((machine, log, list(batches(machine, log, log.log_start_offset))))
            for (a, log_a, one), (b, log_b, other) in pairwise(held):
                # A leader may begin before its follower: it had not heard of a deletion when it was elected.
                start = max(log_a.log_start_offset, log_b.log_start_offset)
                end = min(log_a.high_watermark, log_b.high_watermark)
                mine, theirs = ([batch for batch in all_ if start <= batch.last < end] for all_ in (one, other))
                if mine != theirs:
                    first = next((x, y) for x, y in zip_longest(mine, theirs) if x != y)
                    raise BrokenPromise(f"{born}: {a} and {b} differ below their high watermarks: {first}")

    def _unheard_configs(self) -> str:
        for topic in self._cluster.tree.children(configs.type_path(configs.TOPICS)) or ():
            found = self._cluster.tree.read(configs.path(configs.TOPICS, topic))
            wanted = configs.decode(found.data, topic).get("segment.bytes") if found is not None else None
            for machine in self._cluster.machines.values():
                known = (
                    machine.components.configs.topic_config(topic).segment_bytes
                    if machine.components is not None
                    else None
                )
                if wanted is not None and known != int(wanted):
                    return f"{topic}: segment.bytes is {wanted}, {machine} believes {known}"
        return ""

    def unrest(self, *, ends: bool = False) -> str:
        """What is not as it should be once every broker lives; empty where all is well. `ends`: logs equally long."""
        cluster = self._cluster
        down = [m.name for m in cluster.machines.values() if not m.is_serving or m.is_leaving]
        if down:
            return f"not serving, or not for long: {down}"
        if cluster.controller() is None:
            return "there is not exactly one controller"
        if waiting := cluster.tree.children("/admin/delete_topics"):
            return f"still to be deleted: {waiting}"
        for born, place, state in self.zookeeper.partitions():
            if place.is_reassigning:
                return f"{born}: still reassigning, {place} {state}"
            if state is None or state.leader < 0 or set(state.isr) != set(place.replicas):
                return f"{born}: {place.replicas}, {state}"
            partition = cluster.machines[state.leader].components.replicas.hosted.partitions.get(born.tp)  # type: ignore[union-attr]
            if partition is None or not partition.is_leader or partition.leader_epoch != state.leader_epoch:
                return f"{born}: {state.leader} does not know that it leads, {state}"
            assert partition.log is not None, "a leader has a log"
            high_watermark = partition.log.high_watermark
            held = self.brokers.ends(born)
            behind = {b: held.get(b) for b in place.replicas if b not in held or held[b][0] < high_watermark}
            if behind:
                return f"{born}: behind the leader {behind}, {high_watermark}"
            if ends and len({held[b] for b in place.replicas}) > 1:
                return f"{born}: (end, high watermark) differ: {held}"
        return self._unheard_configs()

"""The twin of `zookeeper/ensemble.py`, over a `MemoryCluster`; for tests."""

from logyard.admin.ports import PartitionsView
from logyard.admin.recovery.witnesses import FENCE, ControllerView, Journal, Step
from logyard.broker.model import BrokerInfo, Endpoint
from tests.support.memory_cluster import MemoryCluster


class MemoryEnsemble:
    """`ports.Ensemble` onto a MemoryCluster."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster

    def close(self) -> None:
        pass

    def controller(self) -> ControllerView:
        c = self._cluster
        epoch = None if c.epoch_garbled else c.epoch
        brokers = {b: _info(b, c.racks[b], c.registered.get(b, -1)) for b in c.live()}
        return ControllerView(c.controller, c.elected, epoch, c.epoch, brokers, c.elected_ms, c.cluster_id)

    def partitions(self) -> PartitionsView:
        c = self._cluster
        return PartitionsView(
            dict(c.states), dict(c.assignments), tuple(tp for tp in sorted(c.assignments) if tp not in c.states)
        )

    def exercise(self, timeout_s: float) -> bool | None:
        c = self._cluster
        return c.controller in c.running and c.controller not in c.hung

    def journal(self) -> Journal:
        return Journal(self._cluster.now_ms, len(self._cluster.steps), tuple(self._cluster.steps))

    def note(self, journal: Journal, kind: str, broker: int) -> bool:
        c = self._cluster
        if journal.version != len(c.steps):
            return False
        c.zxid += 1
        c.steps.append(Step(kind, broker, c.now_ms, c.zxid))
        return True

    def fence(self, seen: ControllerView, journal: Journal) -> bool:
        c = self._cluster
        if c.controller is None or (seen.czxid, seen.epoch_version) != (c.elected, c.epoch):
            return False
        if not self.note(journal, FENCE, c.controller):
            return False
        c.controller = None
        return True

    def nudge_election(self) -> bool:
        if self._cluster.controller is not None:
            return False
        self._cluster.electing = True
        return True

    def repair_epoch(self, seen: ControllerView, epoch: int) -> bool:
        self._cluster.epoch, self._cluster.epoch_garbled = epoch, False
        return True


def _info(broker: int, rack: str | None, epoch: int) -> BrokerInfo:
    return BrokerInfo(broker, (Endpoint("PLAINTEXT", "PLAINTEXT", f"host{broker}", 9092),), rack, epoch)

"""The part of a client of a MemoryCluster that reads records."""

from logyard.admin.cluster.fetching import Fetched
from logyard.admin.ports import ClusterUnreachable
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.records.header import parse_header
from tests.support.memory_cluster import MemoryCluster


class MemoryFetch:
    """`fetch` over the batches that a test has put into the cluster."""

    _cluster: MemoryCluster

    def fetch(self, tp: TopicPartition, leader: int, offset: int, size_max: int) -> Fetched:
        """Batches from that with the offset on; the first whole, then as many as there is room for."""
        c = self._cluster
        start, end = c.start_offsets.get(tp, 0), c.end_offsets.get(tp, 0)
        if leader not in c.running:
            raise ClusterUnreachable(f"the cluster did not answer: no connection to broker {leader}")
        if not start <= offset <= end:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{tp}: {offset} is not from {start} to {end}")
        data = b""
        for batch in c.batches.get(tp, []):
            if parse_header(batch).next_offset > offset and (not data or len(data) + len(batch) <= size_max):
                data += batch
        return Fetched(data, start, end)

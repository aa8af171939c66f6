"""The file of leader epochs checked against the log's batches: an epoch begins where a batch begins."""

from collections.abc import Iterator, Mapping

import numpy as np

from logyard.broker.compiled.kernels import Array
from logyard.broker.log import layout
from logyard.spark_jobs.audit.findings import BAD, Finding
from logyard.spark_jobs.audit.framing import BlindOffsets
from logyard.spark_jobs.segments.replicas import Replica

Columns = Mapping[str, Array]


def epoch_findings(replica: Replica, c: Columns, unknown: BlindOffsets) -> Iterator[Finding]:
    """Find epochs that begin where no batch begins, above what cleaning and retention have changed."""
    if not len(c["base"]):
        return
    known_from = max(replica.clean_offset, replica.log_start_offset)
    file = f"{replica.directory}/{layout.LEADER_EPOCHS}"
    end = int(c["last"][-1]) + 1
    for epoch, start in replica.leader_epochs:
        at = int(np.searchsorted(c["base"], start))
        begins = at < len(c["base"]) and int(c["base"][at]) == start
        if start > known_from and not begins and start != end and not unknown.meets(start, start):
            text = f"epoch {epoch} begins at {start}, where no batch begins"
            yield Finding(BAD, "epochs", *replica.tp, replica.broker_id, file, -1, start, text)

"""/cluster/id: the cluster's id, created by the first broker that starts in it (facts §1)."""

import base64
import uuid

from logyard.broker.errors import CorruptData
from logyard.broker.znodes import fields

PATH = "/cluster/id"


def from_uuid(random_id: uuid.UUID) -> str:
    """Return the 22 base64url characters that Kafka writes for a uuid."""
    return base64.urlsafe_b64encode(random_id.bytes).rstrip(b"=").decode("ascii")


def encode(cluster_id: str) -> bytes:
    """Write the id; the version is a string here, unlike in all other znodes."""
    return fields.dump({"version": "1", "id": cluster_id})


def decode(data: bytes, path: str = PATH) -> str:
    """Return the id. Raises CorruptData, also for an empty id."""
    cluster_id = fields.Fields.parse(path, data).text("id")
    if not cluster_id:
        raise CorruptData(f"znode {path}: the cluster id is empty")
    return cluster_id

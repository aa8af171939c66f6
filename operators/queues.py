"""The scheme `logyard` for `MessageQueueTrigger` of apache-airflow-providers-common-messaging.

AssetWatcher(name="orders", trigger=MessageQueueTrigger(scheme="logyard", topics=["orders"], group="orders-dag"))
"""

import re
from typing import Any
from urllib.parse import urlsplit

from logyard.operators.triggers.arrivals import RecordsArrivedEvent

try:
    from airflow.providers.common.messaging.providers.base_provider import BaseMessageQueueProvider
except ImportError:  # nobody asks for queues then
    BaseMessageQueueProvider = object


class LogyardMessageQueueProvider(BaseMessageQueueProvider):  # type: ignore[misc]  # object without that provider
    """Queues of a Logyard connection: records that a group has not committed (`RecordsArrivedEvent`)."""

    scheme = "logyard"

    def queue_matches(self, queue: str) -> bool:
        return re.match(r"logyard://", queue) is not None

    def trigger_class(self) -> type[RecordsArrivedEvent]:
        return RecordsArrivedEvent

    def trigger_kwargs(self, queue: str, **kwargs: Any) -> dict[str, Any]:
        """The arguments that `logyard://CONN_ID/TOPIC[,TOPIC…]` names and `kwargs` do not."""
        parts = urlsplit(queue)
        named = {"logyard_conn_id": parts.netloc, "topics": [t for t in parts.path.strip("/").split(",") if t]}
        return {name: value for name, value in named.items() if value and name not in kwargs}

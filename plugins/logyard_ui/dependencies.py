"""What the routes of one application share."""

from dataclasses import dataclass, field

from logyard.plugins.logyard_ui.access.actions import Actions
from logyard.plugins.logyard_ui.access.connections import Connections
from logyard.plugins.logyard_ui.cluster.clusters import Clusters


@dataclass(frozen=True)
class Page:
    clusters: Clusters
    connections: Connections = field(default_factory=Connections)
    actions: Actions = field(default_factory=Actions)

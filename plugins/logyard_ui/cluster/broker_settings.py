"""The settings of all brokers, and what brokers would refuse about a change: they are asked with validate-only."""

from collections.abc import Mapping
from dataclasses import dataclass

from logyard.admin.cluster.snapshot import ConfigValue
from logyard.admin.configs.secrets import secret_names
from logyard.admin.errors import ApiError
from logyard.admin.ports import ClusterClient, DescribingClient
from logyard.plugins.logyard_ui.cluster.security import Told, told_or_why
from logyard.plugins.logyard_ui.cluster.topic_check import Refusal, Verdict
from logyard.plugins.logyard_ui.responses.optional_parts import error_line


@dataclass(frozen=True, slots=True)
class BrokerChange:
    """Settings to be set and unset; `broker` None: of all brokers."""

    broker: int | None
    settings: tuple[tuple[str, str], ...] = ()
    unset: tuple[str, ...] = ()


def read_defaults(client: DescribingClient) -> Told[Mapping[str, ConfigValue]]:
    """What is set for all brokers. Raises ClusterUnreachable, ApiError."""
    return told_or_why(client.broker_defaults, {}, "settings of brokers", "DescribeConfigs")


def check_broker(client: ClusterClient, change: BrokerChange) -> Verdict:
    """Ask the broker, or any for those of all. Raises ClusterUnreachable."""
    secrets = secret_names([*(name for name, _ in change.settings), *change.unset])
    if secrets:
        return Verdict(Refusal("configs", f"{', '.join(secrets)}: a secret, which no DAG run may hold."))
    try:
        client.alter_broker_configs(change.broker, dict(change.settings), change.unset, validate_only=True)
    except ApiError as answer:
        return Verdict(Refusal("configs", error_line(answer)))
    return Verdict(None)

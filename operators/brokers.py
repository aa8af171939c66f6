"""Settings of brokers: those of one, or the defaults of all, changed while the brokers run."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow.sdk import Context

from logyard.admin.cluster.snapshot import ConfigValue
from logyard.admin.configs.secrets import secret_names
from logyard.admin.ports import DescribingClient
from logyard.admin.settings import BadSettings
from logyard.operators import outcomes
from logyard.operators.base import ClusterOperator
from logyard.operators.fields import as_config_text, as_mapping

ALL = "default"
"""In place of a broker's id: the settings of all brokers that have no value of their own."""


class AlterBrokerSettingsOperator(ClusterOperator):
    """Set and unset dynamic settings of a broker, or of all brokers; those that are right already do not change.

    A setting that holds a secret is refused, by its name and by what the brokers say of it: whatever a run is given
    stays in Airflow's database. Returns `set`, `unset` and what was there `before`.

    :param broker: its id, or `default`: for all brokers that have no value of their own. (templated)
    :param settings: settings to set, a mapping or its JSON; null unsets. (templated)
    """

    tells = staticmethod(outcomes.broker_settings_altered)
    template_fields: Sequence[str] = ("broker", "settings", *ClusterOperator.template_fields)
    template_fields_renderers: ClassVar[dict[str, str]] = {"settings": "json"}

    def __init__(self, *, broker: int | str, settings: Mapping[str, Any] | str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.broker = broker
        self.settings = settings

    def execute(self, context: Context) -> dict[str, Any]:
        broker = self._broker()
        given = as_mapping("settings", self.settings)
        refuse_secrets(secret_names(given))
        with self.hook.client() as client:
            found, secrets = _read(client, broker)
            refuse_secrets([name for name in given if name in secrets])
            own = {name: one.value for name, one in found.items() if one.source == _source(broker)}
            wanted = {name: as_config_text(value) for name, value in given.items() if value is not None}
            changes = {name: value for name, value in wanted.items() if own.get(name) != value}
            unset = [name for name, value in given.items() if value is None and name in own]
            client.alter_broker_configs(broker, changes, unset, validate_only=self.checks_only)
        return {
            "broker": ALL if broker is None else broker,
            "set": changes,
            "unset": unset,
            "before": {name: own.get(name) for name in (*changes, *unset)},
            "dry_run": self.checks_only,
        }

    def _broker(self) -> int | None:
        """None: all brokers. Raises BadSettings."""
        text = str(self.broker).strip()
        if text == ALL:
            return None
        if not (text.isascii() and text.isdecimal() and len(text) < 11):
            raise BadSettings(f"broker {text!r}: its id is expected, or {ALL} for the settings of all brokers")
        return int(text)


def refuse_secrets(names: Sequence[str]) -> None:
    """Raises BadSettings if there are any."""
    if names:
        raise BadSettings(
            f"{', '.join(names)}: a secret, which a run would keep in Airflow's database and logs: set it by "
            "`logyard configs` or `kafka-configs`"
        )


def _read(client: DescribingClient, broker: int | None) -> tuple[dict[str, ConfigValue], set[str]]:
    """The settings that may change, and the names of those that the brokers call sensitive."""
    found = client.broker_defaults() if broker is None else client.broker_configs(broker)
    told = found
    if broker is None:
        alive = sorted(client.snapshot([]).brokers)
        told = found | (client.broker_configs(alive[0]) if alive else {})
    return found, {name for name, one in told.items() if one.sensitive}


def _source(broker: int | None) -> str:
    return "DYNAMIC_DEFAULT_BROKER_CONFIG" if broker is None else "DYNAMIC_BROKER_CONFIG"

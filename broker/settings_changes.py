"""Applies settings that change in ZooKeeper while the broker runs (facts §20)."""

from collections.abc import Mapping

import structlog

from logyard.broker import tasks
from logyard.broker.cleaner.service import CleaningService
from logyard.broker.config.broker import BrokerConfig, topic_config
from logyard.broker.config.stored_overrides import readable
from logyard.broker.controller.policies import Policies
from logyard.broker.controller.runner import ControllerRunner
from logyard.broker.controller.settings import settings_from
from logyard.broker.log.store import LogStore
from logyard.broker.metadata.dynamic_configs import DEFAULT_ENTITY, DynamicConfigs
from logyard.broker.replication.replicas import Replicas
from logyard.broker.security import quota_settings
from logyard.broker.server.admission import Admission
from logyard.broker.tls.updates import TlsUpdates
from logyard.broker.znodes import configs

log = structlog.get_logger("logyard.broker")


class SettingsChanges:
    """Passes changed settings on to the broker's parts; `cleaning` and `admission` are None if the broker has none."""

    def __init__(
        self,
        policies: Policies,
        *,
        configs: DynamicConfigs,
        controller: ControllerRunner,
        replicas: Replicas,
        store: LogStore,
        cleaning: CleaningService | None,
        admission: Admission | None,
        tls: TlsUpdates,
    ) -> None:
        self._tls = tls
        self._config, self._policies = tls.config, policies
        self._configs, self._controller, self._replicas, self._store = configs, controller, replicas, store
        self._cleaning, self._admission = cleaning, admission

    def take(self, kind: str, name: str, settings: Mapping[str, str]) -> None:
        """Apply these overrides of an entity.

        :param kind: "topics", "brokers", or a kind of quota entity: the names of the znodes below /config.
        :raises ConfigProblems: the broker's settings contradict each other.
        :raises CorruptData: a credential or a quota of an entity cannot be read; the others of it count.
        """
        if kind == "topics":
            before = self._configs.topic_config(name).unclean_leader_election_enable
            self._configs.set_topic(name, settings)
            if self._configs.topic_config(name).unclean_leader_election_enable and not before:
                self._controller.on_topic_unclean_election_enabled(name)
        elif kind == "brokers":
            self._configs.set_broker(name, settings)
            self._take_broker_settings()
        else:
            try:
                if kind == configs.USERS:
                    self._configs.credentials.take(name, settings)
            finally:
                # A credential that cannot be read takes no quota away.
                quota_settings.changed(self._configs, kind, name, settings)
                host = quota_settings.host_of(kind, name)
                if host is not None and self._admission is not None:
                    self._admission.name_has_quota(host, has_quota=host in self._configs.ip_quotas())

    def effective(self) -> BrokerConfig:
        """Return the configuration with the overrides that ZooKeeper has for this broker. Raises ConfigProblems."""
        own, every = (
            readable(
                self._configs.entity_overrides(entity), lambda text: log.warning("config", note=text), self._tls.decode
            )
            for entity in (str(self._config.broker_id), DEFAULT_ENTITY)
        )
        return self._config.with_dynamic(own, every)

    def _take_broker_settings(self) -> None:
        effective = self.effective()
        defaults = effective.topic_defaults()
        self._configs.set_build(lambda overrides: topic_config(defaults, overrides))
        self._controller.update_settings(settings_from(effective, self._policies))
        if self._cleaning is not None:
            self._cleaning.configure(effective)
        self._replicas.settings.take_over(effective)
        self._store.logs.verification.is_on = effective.bool("transaction.partition.verification.enable")
        self._store.producer_id_expiration_ms = effective.int("producer.id.expiration.ms")
        if self._admission is not None:
            self._admission.take_over(effective)
        if self._tls.has_listeners:
            tasks.spawn("TLS stores", self._tls.take(effective))

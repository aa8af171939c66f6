"""Dynamic settings as /config holds them: overrides of topics, brokers, users, clients and addresses.

Rule 1: written by the watcher of /config/changes (and by its first load at the start), read by everything on the loop.
Rule 2: a topic's effective TopicConfig is built once and kept until its own overrides or the broker's defaults change.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from logyard.broker.config.topic import TopicConfig
from logyard.broker.metadata.user_credentials import UserCredentials

K = TypeVar("K")

DEFAULT_ENTITY = "<default>"

Overrides = Mapping[str, str]
Quota = Mapping[str, str]
QuotaEntity = tuple[str | None, str | None]  # (user, client id); None: not part of the entity

TopicsChanged = Callable[[Iterable[str] | None], None]
QuotasChanged = Callable[[], None]


class DynamicConfigs:
    """The overrides, by the rules at the head of this file.

    `build` turns a topic's overrides into its effective settings (over the broker's own topic defaults).
    """

    def __init__(self, broker_id: int, build: Callable[[Overrides], TopicConfig]) -> None:
        self.broker_id = broker_id
        self._build = build
        self._topics: dict[str, Overrides] = {}
        self._effective: dict[str, TopicConfig] = {}
        self._defaults = build({})
        self._brokers: dict[str, Overrides] = {}
        self._quotas: dict[QuotaEntity, Quota] = {}
        self._ip_quotas: dict[str, Quota] = {}
        self._on_topics: list[TopicsChanged] = []
        self._on_quotas: list[QuotasChanged] = []
        self.credentials = UserCredentials()

    # Topics

    def topic_config(self, topic: str) -> TopicConfig:
        """Return a topic's effective settings; those of a topic without overrides are one shared object."""
        effective = self._effective.get(topic)
        if effective is not None:
            return effective
        overrides = self._topics.get(topic)
        if not overrides:
            return self._defaults
        effective = self._effective[topic] = self._build(overrides)
        return effective

    def topic_overrides(self, topic: str) -> Overrides:
        """Return the overrides of the topic itself."""
        return self._topics.get(topic, {})

    def set_topic(self, topic: str, overrides: Overrides) -> None:
        """Set a topic's overrides (empty: none, or the topic is gone) and call the listeners if they changed."""
        self.set_topics({topic: overrides})

    def set_topics(self, settings: Mapping[str, Overrides]) -> None:
        """As `set_topic`, of many. The listeners are called once."""
        changed = []
        for topic, overrides in settings.items():
            if dict(overrides) == dict(self._topics.get(topic, {})):
                continue
            if overrides:
                self._topics[topic] = dict(overrides)
            else:
                self._topics.pop(topic, None)
            self._effective.pop(topic, None)
            changed.append(topic)
        if changed:
            self._tell_topics(tuple(changed))

    def set_build(self, build: Callable[[Overrides], TopicConfig]) -> None:
        """Replace `build`, as the broker's topic defaults changed: every topic's settings may have changed."""
        self._build = build
        self._effective.clear()
        self._defaults = build({})
        self._tell_topics(None)

    def on_topics(self, listener: TopicsChanged) -> None:
        """Call `listener(topics)` after changes; None: any topic's settings may have changed."""
        self._on_topics.append(listener)

    def _tell_topics(self, topics: Iterable[str] | None) -> None:
        for listener in tuple(self._on_topics):
            listener(topics)

    # Brokers

    def set_broker(self, entity: str, overrides: Overrides) -> None:
        """Set the overrides of a broker (its id as text, or `<default>`)."""
        self._brokers[entity] = dict(overrides)

    def entity_overrides(self, entity: str) -> Overrides:
        """Return the overrides of one broker id or of `<default>`, exactly as set."""
        return self._brokers.get(entity, {})

    # Client quotas (facts §18)

    def set_quota(self, user: str | None, client_id: str | None, quota: Quota) -> None:
        """Set the quota of a user, a client id, or both together; empty removes it."""
        self._replace(self._quotas, (user, client_id), quota)

    def set_ip_quota(self, ip: str, quota: Quota) -> None:
        """Set the connection-rate quota of an address or of `<default>`; empty removes it."""
        self._replace(self._ip_quotas, ip, quota)

    def quotas(self) -> Mapping[QuotaEntity, Quota]:
        """Return every user and client quota by (user, client id)."""
        return self._quotas

    def ip_quotas(self) -> Mapping[str, Quota]:
        """Return every quota by address."""
        return self._ip_quotas

    def on_quotas(self, listener: QuotasChanged) -> None:
        """Call `listener()` when any quota changed."""
        self._on_quotas.append(listener)

    def _replace(self, kept: dict[K, Quota], entity: K, quota: Quota) -> None:
        if dict(quota) == dict(kept.get(entity, {})):
            return
        if quota:
            kept[entity] = dict(quota)
        else:
            kept.pop(entity, None)
        for listener in tuple(self._on_quotas):
            listener()

"""The settings of one listener: its own, and the broker's where it has none of its own."""

import builtins
from collections.abc import Mapping

from logyard.broker.config.key_types import ConfigValue
from logyard.broker.config.listener_keys import base_of, of_mechanism, prefixed
from logyard.broker.config.typed_values import TypedValues
from logyard.broker.model import Endpoint


class ListenerSettings(TypedValues):
    """`settings.str("ssl.keystore.location")` reads the listener's key if it was given, else the broker's.

    This is Kafka's `valuesWithPrefixOverride`.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        given: Mapping[builtins.str, ConfigValue],
        broker: Mapping[builtins.str, ConfigValue],
        *,
        only_asks: builtins.bool = False,
    ) -> None:
        """Use `BrokerConfig.listener`. `given` has all keys that were given, `broker` the broker's effective values.

        With `only_asks` no client has to show a certificate (`client_auth`): there are other ways to log in.
        """
        self.name = endpoint.listener
        self._only_asks = only_asks
        self.protocol = endpoint.protocol
        self._given = given
        prefix = prefixed(endpoint.listener, "")
        own = {name.removeprefix(prefix): value for name, value in given.items() if name.startswith(prefix)}
        super().__init__({**broker, **{key: value for key, value in own.items() if key in broker}})

    def is_own(self, key: builtins.str) -> builtins.bool:
        """Whether the listener has this setting for itself."""
        return prefixed(self.name, key) in self._given

    def name_of(self, key: builtins.str) -> builtins.str:
        """Return the name under which the setting that counts was given, for messages."""
        return prefixed(self.name, key) if self.is_own(key) else key

    def of_mechanism(self, mechanism: builtins.str) -> TypedValues:
        """Return the settings of one SASL mechanism: its own over the listener's over the broker's."""
        prefix = of_mechanism(self.name, mechanism, "")
        own = {base_of(name): value for name, value in self._given.items() if name.startswith(prefix)}
        return TypedValues({**self._values, **{key: value for key, value in own.items() if key is not None}})

    def own_of_mechanism(self, mechanism: builtins.str, key: builtins.str) -> builtins.str | None:
        """Return what `listener.name.<listener>.<mechanism>.<key>` itself says (sasl.jaas.config), or None."""
        value = self._given.get(of_mechanism(self.name, mechanism, key))
        return value if isinstance(value, builtins.str) else None

    @property
    def client_auth(self) -> builtins.str:
        """ssl.client.auth: none, requested or required. Of a SASL_SSL listener only its own key counts (KIP-684)."""
        if self.protocol == "SASL_SSL" and not self.is_own("ssl.client.auth"):
            return "none"
        found = self.str("ssl.client.auth")
        return "requested" if self._only_asks and found == "required" else found

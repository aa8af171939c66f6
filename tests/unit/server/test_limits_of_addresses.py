"""Limits of one address hold for its connections, however the settings spell it."""

import pytest

from logyard.broker.config.addresses import address_counts
from logyard.broker.config.topic import TopicConfig
from logyard.broker.metadata.dynamic_configs import DynamicConfigs
from logyard.broker.security import quota_settings
from logyard.broker.server.admission import Admission, Limits
from logyard.broker.znodes.configs import sanitize


@pytest.mark.parametrize(
    ("spelled", "peer"),
    [
        ("0:0:0:0:0:0:0:1", "::1"),  # as Java writes it, and so ACLs and logs
        ("2001:DB8:0:0::0A", "2001:db8::a"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", "fe80::1"),
        ("10.0.0.1", "10.0.0.1"),
    ],
)
async def test_limits_of_an_address(spelled: str, peer: str) -> None:
    doors = Admission(Limits(per_ip_max=9, per_ip_overrides=address_counts(f"[{spelled}]:0")), lambda: 0.0)
    assert doors.refusal(peer) == "this address has 0 connections, the most allowed"
    configs = DynamicConfigs(1, lambda overrides: TopicConfig())
    doors.ip_quotas = configs.ip_quotas
    quota_settings.changed(configs, "ips", sanitize(spelled), {"connection_creation_rate": "1"})
    delays = [doors.delay_ms(peer, "PLAIN", protected=False) for _ in range(20)]
    assert (delays[0], delays[-1]) == (0, 1000)
    quota_settings.changed(configs, "ips", sanitize(spelled), {})
    assert doors.delay_ms(peer, "PLAIN", protected=False) == 0

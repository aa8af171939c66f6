"""Limits of one address hold for its connections, however the settings spell it."""

import asyncio
from functools import partial

import pytest

from logyard.broker.config.addresses import address_counts
from logyard.broker.config.topic import TopicConfig
from logyard.broker.metadata.dynamic_configs import DynamicConfigs
from logyard.broker.security import quota_settings
from logyard.broker.server.admission import Admission, Limits
from logyard.broker.server.host_names import HostNames
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


async def test_the_quota_of_a_host_s_name_is_that_of_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker of Kafka may have written it: nobody was kept waiting."""

    def look_up(name: str) -> frozenset[str]:
        return frozenset({"10.0.0.1", "10.0.0.2"}) if name == "db" else frozenset()

    monkeypatch.setattr("logyard.broker.server.admission.HostNames", partial(HostNames, look_up=look_up))
    doors = Admission(Limits(), lambda: 0.0)
    configs = DynamicConfigs(1, lambda overrides: TopicConfig())
    doors.ip_quotas = configs.ip_quotas
    for name in ("db", "10.0.0.2", "<default>"):
        rate = "1000" if name == "10.0.0.2" else "1"
        quota_settings.changed(configs, "ips", name, {"connection_creation_rate": rate})
        host = quota_settings.host_of("ips", name)
        assert host == ("db" if name == "db" else None)
        if host is not None:
            doors.name_has_quota(host, has_quota=True)
    quota_settings.changed(configs, "ips", "<default>", {})

    def last_delay(address: str) -> int:
        return [doors.delay_ms(address, "PLAIN", protected=False) for _ in range(20)][-1]

    async with asyncio.timeout(10):
        while not last_delay("10.0.0.1"):
            await asyncio.sleep(0.001)
    assert last_delay("10.0.0.2") == 0, "it has one of its own"
    assert last_delay("10.0.0.3") == 0
    quota_settings.changed(configs, "ips", "db", {})
    doors.name_has_quota("db", has_quota=False)
    assert last_delay("10.0.0.1") == 0
    doors.close()

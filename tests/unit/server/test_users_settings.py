"""A user's znode has credentials and quotas: what is wrong with one of them takes nothing from the others."""

import asyncio
from pathlib import Path

from logyard.broker.znodes import config_changes, configs
from logyard.broker.znodes.ops import Create
from logyard.broker.znodes.scram_credentials import ScramCredential
from tests.support.inside_broker import InsideBroker

SCRAM = "SCRAM-SHA-256"


async def test_a_credential_that_cannot_be_read_takes_no_quota_away(tmp_path: Path) -> None:
    good = ScramCredential.of_password(SCRAM, "secret", 4096, b"salt").text()
    async with InsideBroker(tmp_path) as broker:
        for user, settings in (
            ("a", {SCRAM: "rubbish", "producer_byte_rate": "5"}),
            ("b", {SCRAM: good, "producer_byte_rate": "many"}),
        ):
            written = Create(configs.path(configs.USERS, user), configs.encode(settings))
            await broker.components.services.zk.multi([written, config_changes.notice(configs.USERS, user)])
        known = broker.components.configs
        async with asyncio.timeout(5):
            while known.credentials.scram(SCRAM, "b") is None:
                await asyncio.sleep(0.01)
        assert known.quotas() == {("a", None): {"producer_byte_rate": "5"}}
        assert known.credentials.scram(SCRAM, "a") is None

"""Overrides that a broker of any kind may have stored, and those that none of ours lets pass."""

import pytest

from logyard.broker.config.broker import BrokerConfig, validate_dynamic_overrides
from logyard.broker.config.stored_overrides import readable
from logyard.broker.errors import ApiError, ErrorCode

CONFIG = BrokerConfig.parse("zookeeper.connect=z:1\nlog.dirs=/x\nbroker.id=1\n")
PER_IP = "max.connections.per.ip.overrides"


@pytest.mark.parametrize("value", ["db..internal:5", "10.0.0.1:²", "10.0.0.1", f"{'a' * 64}:1", ":5"])
@pytest.mark.parametrize("cluster_wide", [False, True])
def test_what_nobody_could_look_up_is_refused(value: str, cluster_wide: bool) -> None:
    with pytest.raises(ApiError, match="address:count") as refused:
        validate_dynamic_overrides(CONFIG, {PER_IP: value}, cluster_wide=cluster_wide)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    validate_dynamic_overrides(CONFIG, {PER_IP: "db.internal:5,10.0.0.1:3"}, cluster_wide=cluster_wide)


def test_a_stored_value_that_cannot_be_read_leaves_the_others_in_force() -> None:
    notes: list[str] = []
    stored = {PER_IP: "db..internal:5", "max.connections": "7", "of.somebody.else": "x", "num.io.threads": "many"}
    left = readable(stored, notes.append, str)
    assert left == {"max.connections": "7", "of.somebody.else": "x"}
    assert CONFIG.with_dynamic({}, left).int("max.connections") == 7
    assert len(notes) == 2
    assert PER_IP in notes[0]


def test_a_password_that_cannot_be_decrypted_is_left_out() -> None:
    notes: list[str] = []

    def decode(text: str) -> str:
        if text != "encrypted":
            raise ValueError("the stored password cannot be decrypted")
        return "swordfish"

    good, bad = "listener.name.x.ssl.keystore.password", "listener.name.x.ssl.key.password"
    assert readable({good: "encrypted", bad: "torn"}, notes.append, decode) == {good: "swordfish"}
    assert notes == [f"{bad}: the stored password cannot be decrypted: the override is left out"]

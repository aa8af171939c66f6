"""Which settings hold secrets, by their names."""

import pytest

from logyard.admin.configs.secrets import secret_names
from logyard.broker.config.keys import KEYS


def test_every_password_of_a_broker_is_one_and_nothing_else() -> None:
    assert sorted(secret_names(KEYS)) == sorted(name for name, key in KEYS.items() if key.sensitive)


@pytest.mark.parametrize(
    "name",
    [
        "listener.name.internal.ssl.keystore.password",
        "listener.name.internal.scram-sha-512.sasl.jaas.config",
        "password.encoder.old.secret",
        " SSL.Key.Password ",
        "my.reporter.api.key",
        "vault_token",
    ],
)
def test_listeners_and_plugins_have_secrets_too(name: str) -> None:
    assert secret_names(["num.io.threads", name]) == [name]


def test_what_only_sounds_like_one_is_none() -> None:
    names = ["password.encoder.iterations", "delegation.token.expiry.time.ms", "ssl.keystore.type", "broken"]
    assert secret_names(names) == []

"""Tokens of a token endpoint: asked for once while they live, and a refusal names everything but the secret."""

import time
from pathlib import Path

import pytest

from logyard.login.oauth import NoToken, TokenSource
from logyard.login.security import BadSettings, Security
from tests.support.token_endpoint import TokenEndpoint


def security(url: str, secret: str = "hunter2") -> Security:
    return Security(oauth_token_url=url, oauth_client_id="alice", oauth_client_secret=secret, oauth_scope="kafka")


def test_a_token_is_used_while_it_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with TokenEndpoint(tmp_path, {"alice": "hunter2"}, life_s=100) as endpoint:
        source = TokenSource(security(endpoint.url))
        first = source.token()
        assert source.token() == first
        assert endpoint.asked == 1
        later = time.monotonic() + 81
        monkeypatch.setattr(time, "monotonic", lambda: later)
        source.token()
        assert endpoint.asked == 2


def test_a_refusal_names_the_client_and_not_its_secret(tmp_path: Path) -> None:
    refused = pytest.raises(NoToken, match="refuses client 'alice': 401 invalid_client")
    with TokenEndpoint(tmp_path, {"alice": "other"}) as endpoint, refused as found:
        TokenSource(security(endpoint.url)).token()
    assert "hunter2" not in str(found.value)
    with pytest.raises(NoToken, match="gives no token"):
        TokenSource(security(endpoint.url)).token()
    with pytest.raises(BadSettings, match="an http or https URL"):
        TokenSource(security("file:///etc/passwd")).token()


def test_a_given_token_is_taken_as_it_is() -> None:
    assert TokenSource(Security(oauth_token="t")).token() == "t"

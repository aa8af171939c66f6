"""`logyard transactions`: what is refused before anybody is asked."""

from typing import Any

import pytest

from logyard.cli import options


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("find-hanging",), "give --topic or --broker-id"),
        (("find-hanging", "--broker-id", "1", "--partition", "0"), "--partition needs --topic"),
        (("abort", "--topic", "t", "--partition", "0"), "give --start-offset, or --producer-id"),
        (("abort", "--topic", "t", "--partition", "0", "--producer-id", "1"), "--producer-id needs --producer-epoch"),
    ],
)
def test_misuse(run: Any, words: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Nobody:
        def __init__(self, settings: object) -> None: ...

        def close(self) -> None: ...

    monkeypatch.setattr(options, "open_requests", Nobody)
    status, out, err = run("transactions", *words, "--bootstrap-server", "b:1")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert said in err

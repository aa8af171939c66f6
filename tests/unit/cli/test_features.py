"""`logyard features`: what is asked, printed and refused."""

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from logyard.admin.cluster.features import Feature, Features, Kind
from logyard.broker.errors import ApiError, ErrorCode
from logyard.cli import options


class Cluster:
    """Takes every level but those of `other`."""

    asked: ClassVar[list[Any]] = []

    def __init__(self, settings: object) -> None: ...

    def close(self) -> None: ...

    def features(self) -> Features:
        return Features((Feature("transaction.version", 1, 2, 0),), 0)

    def update_features(
        self, levels: Mapping[str, int], kind: Kind, *, validate_only: bool = False
    ) -> dict[str, ApiError | None]:
        self.asked.append((dict(levels), kind, validate_only))
        refused = ApiError(ErrorCode.INVALID_REQUEST, "No.")
        return {name: refused if name == "other" else None for name in levels}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    monkeypatch.setattr(options, "open_requests", Cluster)
    monkeypatch.setattr(Cluster, "asked", [])
    return Cluster.asked


def test_describe(run: Any, asked: list[Any]) -> None:
    status, out, err = run("features", "describe", "--bootstrap-server", "b:1")
    assert (status, err) == (0, "")
    assert out == (
        "Feature: transaction.version\tSupportedMinVersion: 1\tSupportedMaxVersion: 2\t"
        "FinalizedVersionLevel: 0\tEpoch: 0\n"
    )


@pytest.mark.parametrize(
    ("words", "kind", "dry_run", "said"),
    [
        (("upgrade",), Kind.UPGRADE, False, "a was upgraded to 2."),
        (("upgrade", "--dry-run"), Kind.UPGRADE, True, "a can be upgraded to 2."),
        (("downgrade",), Kind.SAFE_DOWNGRADE, False, "a was downgraded to 2."),
        (("downgrade", "--unsafe"), Kind.UNSAFE_DOWNGRADE, False, "a was downgraded to 2."),
    ],
)
def test_a_change(run: Any, asked: list[Any], words: tuple[str, ...], kind: Kind, dry_run: bool, said: str) -> None:
    status, out, err = run("features", *words, "--bootstrap-server", "b:1", "--feature", "a=2")
    assert (status, out, err) == (0, said + "\n", "")
    assert asked == [({"a": 2}, kind, dry_run)]


def test_a_refusal_fails(run: Any, asked: list[Any]) -> None:
    words = ("--bootstrap-server", "b:1", "--feature", "a=2", "--feature", "other=1")
    status, out, err = run("features", "upgrade", *words)
    assert status == 1
    assert out.splitlines() == ["a was upgraded to 2.", "Could not upgrade other to 1. No."]
    assert "1 out of 2 operation(s) failed." in err


def test_nobody_is_asked_what_cannot_be_read(run: Any, asked: list[Any]) -> None:
    status, _, err = run("features", "upgrade", "--bootstrap-server", "b:1", "--feature", "a")
    assert (status, asked) == (1, [])
    assert "give name=level" in err

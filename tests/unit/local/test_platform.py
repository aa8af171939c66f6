"""The platform's own decisions; that it starts and stops is for tests/integration/platform."""

from pathlib import Path

import pytest

from logyard.local import files
from logyard.local.errors import LocalError
from logyard.local.layout import Settings
from logyard.local.platform import Platform


@pytest.mark.parametrize(
    ("settings", "said"),
    [(Settings(1), "is secured: start it with --secure"), (Settings(0, secure=True), "--brokers 0")],
)
def test_settings_that_cannot_be_used_stop_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings, said: str
) -> None:
    platform = Platform(tmp_path / "up")
    platform.cluster.layout.directory.mkdir(parents=True)
    platform.cluster.layout.keep_settings(Settings(1, secure=True))
    monkeypatch.setattr(platform, "abandon", lambda: pytest.fail("what runs was stopped"))
    with pytest.raises(LocalError, match=said):
        platform.start(settings)


def test_the_page_and_the_users_dags_are_told(tmp_path: Path) -> None:
    platform = Platform(tmp_path / "up", own_dags=tmp_path / "mine")
    files.write_json(platform.cluster.layout.description, {"bootstrap": "b:1", "zookeeper": "z:1"})
    platform.airflow.home.prepare()
    told = dict(platform.addresses())
    assert told["the cluster's page"] == f"{told['Airflow']}/plugin/logyard"
    assert told["your DAGs"] == str(tmp_path / "mine")
    assert "your DAGs" not in dict(Platform(tmp_path / "up").addresses())

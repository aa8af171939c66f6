"""The files of `logyard airflow install-dags`: what Airflow finds in them, and whose files are left alone."""

import subprocess
import sys
from pathlib import Path

import pytest

from logyard.cli import main
from logyard.local.airflow.dag_files import DAGS, DagFile, install
from logyard.local.errors import LocalError

WEST = DagFile("west_", "kafka_west", "spark_west")
REPOSITORY = Path(__file__).resolve().parents[4]


def test_there_is_one_for_every_packaged_dag() -> None:
    packaged = {path.stem.removeprefix("logyard_") for path in (REPOSITORY / "dags").glob("logyard_*.py")}
    assert set(DAGS) == packaged


def test_files_are_written_again_unless_somebody_changed_them(tmp_path: Path) -> None:
    written = install(tmp_path, WEST, list(DAGS))
    assert {path.name for path in written} == {f"west_{dag}.py" for dag in DAGS}
    assert install(tmp_path, WEST, list(DAGS)) == written
    other = DagFile("west_", "another", "spark_west")
    install(tmp_path, other, ["create_topic"])
    changed = tmp_path / "west_create_topic.py"
    assert "create_topic_dag('west_', 'another')" in changed.read_text()
    changed.write_text(changed.read_text() + "# mine\n")
    with pytest.raises(LocalError, match="changed since"):
        install(tmp_path, WEST, list(DAGS))
    install(tmp_path, WEST, list(DAGS), force=True)
    assert "'kafka_west'" in changed.read_text()


def test_nothing_is_written_where_anything_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="choose among"):
        install(tmp_path, WEST, ["create_topic", "nonsense"])
    (tmp_path / "west_topic_lifecycle.py").write_text("mine")
    with pytest.raises(LocalError, match="not written by this command"):
        install(tmp_path, WEST, ["create_topic", "topic_lifecycle"])
    assert [path.name for path in tmp_path.iterdir()] == ["west_topic_lifecycle.py"]
    with pytest.raises(LocalError, match="not a folder"):
        install(tmp_path / "absent", WEST, ["create_topic"])
    for broken in (("a b", "c", "s"), ("p_", "c'", "s"), ("p_", "c", "")):
        with pytest.raises(LocalError, match="are allowed"):
            DagFile(*broken)


def test_the_command_says_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["airflow", "install-dags", str(tmp_path), "--dag", "create_topic"]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / "logyard_create_topic.py")]
    assert main.main(["airflow", "install-dags", str(tmp_path / "absent")]) == 1


@pytest.mark.airflow
def test_airflow_finds_exactly_these_dags(tmp_path: Path) -> None:
    """By Airflow's own reader, in a folder that also has an `operators` of its own."""
    pytest.importorskip("airflow.sdk")
    (tmp_path / "operators").mkdir()
    (tmp_path / "operators" / "__init__.py").write_text("")
    install(tmp_path, WEST, list(DAGS))
    script = f"""
from airflow.dag_processing.dagbag import DagBag
bag = DagBag({str(tmp_path)!r}, bundle_path=None)
print(sorted(bag.dags), bag.import_errors)
print(bag.dags["west_topics_as_code"].get_task("plan").directory)
"""
    environment = {"AIRFLOW_HOME": str(tmp_path / "home"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False", "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0, done.stderr
    found, directory = done.stdout.strip().splitlines()[-2:]
    assert found == f"{sorted(f'west_{dag}' for dag in DAGS)} {{}}"
    assert directory == str(tmp_path)

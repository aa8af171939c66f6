"""The names that docs/spark.md gives: files that spark-submit runs, `python -m`, and what users import."""

import runpy
import sys
from pathlib import Path

import pytest

from logyard.spark_jobs import manifest, shipping, source

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("job", shipping.JOBS)
def test_spark_submit_and_python_run_the_same_job(
    job: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [job, "--help"])
    texts = []
    for run, name in (
        (runpy.run_path, str(ROOT / "spark_jobs" / f"{job}.py")),
        (runpy.run_module, f"logyard.spark_jobs.{job}"),
    ):
        with pytest.raises(SystemExit) as ended:
            run(name, run_name="__main__")
        assert ended.value.code == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    assert texts[0].startswith(f"usage: {job}.py ")


def test_what_users_import() -> None:
    assert callable(source.register)
    assert callable(manifest.ManifestStore.live_files)

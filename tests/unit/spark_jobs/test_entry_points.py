"""The names that docs/spark.md gives: files that spark-submit runs, `python -m`, and what users import."""

import importlib
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


@pytest.mark.parametrize("job", shipping.JOBS)
def test_spark_connect_is_refused_in_one_line_before_anything_is_asked(
    job: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://127.0.0.1:15002")
    monkeypatch.setattr("logyard.spark_jobs.cluster.connect", lambda _arguments: pytest.fail("nothing is asked"))
    main = importlib.import_module(f"logyard.spark_jobs.{job}.job").main
    words = {"export": ["--topic", "t", "--destination", str(tmp_path)]}
    words["maintenance"] = ["--destination", str(tmp_path), "--catalog", "c.json", "--table", "lake.t"]
    assert main(words.get(job, ["--topic", "t"])) == 1
    said = f"{job}.py: {job} needs Spark's RDDs, which Spark Connect does not have: give --master, and no --remote\n"
    assert capsys.readouterr() == ("", said)


def test_what_users_import() -> None:
    assert callable(source.register)
    assert callable(manifest.ManifestStore.live_files)

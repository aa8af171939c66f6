"""The names that docs/spark.md gives: files that spark-submit runs, `python -m`, and what users import."""

import importlib
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from logyard.spark_jobs import manifest, shipping, source
from logyard.spark_jobs.command import is_read

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


LEFT = """
import atexit, sys, threading, time
from logyard.spark_jobs.command import leave
atexit.register(print, ", given back", end="")
threading.Thread(target=time.sleep, args=(3600,)).start()
print("summary", end="")
sys.stderr.write("failed")
leave(int(sys.argv[1]))
"""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("status", [0, 1, 2])
def test_a_job_that_is_done_leaves_at_once_with_all_that_it_said(status: int) -> None:
    done = subprocess.run([sys.executable, "-c", LEFT, str(status)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (status, "summary, given back", "failed")


def test_what_waits_in_a_pipe_is_not_read_yet(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    assert is_read(writing)
    os.write(writing, b"summary")
    assert not is_read(writing)
    assert os.read(reading, 100) == b"summary"
    assert is_read(writing)
    os.close(reading)
    os.close(writing)
    with open(tmp_path / "file", "wb") as file:
        file.write(b"summary")
        file.flush()
        assert is_read(file.fileno())

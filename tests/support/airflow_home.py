"""Airflow's home for tests that run in this process: a directory of their own, gone afterwards.

To be called before anything imports Airflow.
"""

import atexit
import os
import shutil
import tempfile


def prepare() -> None:
    """Make the home, once for each process."""
    os.environ.setdefault("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
    if "AIRFLOW_HOME" not in os.environ:
        home = os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="logyard-test-airflow-")
        atexit.register(shutil.rmtree, home, ignore_errors=True)

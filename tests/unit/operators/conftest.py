"""Airflow's home for these tests is a directory of their own, set before anything imports Airflow."""

import os
import tempfile

os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="logyard-test-airflow-"))
os.environ.setdefault("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
# No worker process ends here, so no trigger has to wait for its heartbeat.
os.environ.setdefault("AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL", "0")
# Every wait is to be seen in the triggerer, also one that is over at the second look.
os.environ.setdefault("AIRFLOW__LOGYARD__DEFER_AFTER_S", "0")

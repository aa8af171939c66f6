"""Airflow's settings for these tests."""

import os

# No worker process ends here, so no trigger has to wait for its heartbeat.
os.environ.setdefault("AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL", "0")
# Every wait is to be seen in the triggerer, also one that is over at the second look.
os.environ.setdefault("AIRFLOW__LOGYARD__DEFER_AFTER_S", "0")

"""Airflow's home for these tests is a directory of their own, set before anything imports Airflow."""

from tests.support import airflow_home

airflow_home.prepare()

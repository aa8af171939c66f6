"""Airflow's home is a directory of these tests' own, set before any of them imports Airflow: else it is the user's."""

from tests.support import airflow_home

airflow_home.prepare()

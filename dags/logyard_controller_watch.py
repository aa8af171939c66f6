"""Recover the controller automatically: runs when the controller changes or is lost, or a broker is lost."""

from logyard.dags.factories.controller_watch import controller_watch_dag

dag = controller_watch_dag()  # airflow finds it by this name

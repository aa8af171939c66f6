"""Elect preferred leaders: the first replica of each partition, where another one leads."""

from logyard.dags.factories.elect_leaders import elect_leaders_dag

dag = elect_leaders_dag()  # airflow finds it by this name

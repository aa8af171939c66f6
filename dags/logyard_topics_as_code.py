"""Make topics what a YAML file says: plan the difference, have a person approve it, apply what was approved."""

from pathlib import Path

from logyard.dags.factories.topics_as_code import topics_as_code_dag

dag = topics_as_code_dag(directory=Path(__file__).parent)  # airflow finds it by this name

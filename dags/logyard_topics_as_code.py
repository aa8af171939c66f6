"""Make topics match a YAML file: plan the changes, let a person approve them, apply the approved ones."""

from pathlib import Path

from logyard.dags.factories.topics_as_code import topics_as_code_dag

dag = topics_as_code_dag(directory=Path(__file__).parent)  # airflow finds it by this name

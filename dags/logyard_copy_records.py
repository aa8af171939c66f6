"""Copy records of one topic into another of the same cluster."""

from logyard.dags.factories.copy_records import copy_records_dag

dag = copy_records_dag()  # airflow finds it by this name

"""A topic's life from one form: create, alter, add partitions, delete; each step only where it is asked for."""

from logyard.dags.factories.topic_lifecycle import topic_lifecycle_dag

dag = topic_lifecycle_dag()  # airflow finds it by this name

"""Move replicas: plan (or take a plan), let a person approve it, execute in waves, verify, elect preferred leaders."""

from logyard.dags.factories.reassign_replicas import reassign_replicas_dag

dag = reassign_replicas_dag()  # airflow finds it by this name

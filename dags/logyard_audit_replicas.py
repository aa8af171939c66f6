"""Audit the segments of every replica with Spark; nothing is changed."""

from logyard.dags.factories.audit_replicas import audit_replicas_dag

dag = audit_replicas_dag()  # airflow finds it by this name

"""Audit the segments of every replica with Spark; changes nothing."""

from logyard.dags.factories.audit_replicas import audit_replicas_dag

dag = audit_replicas_dag()  # airflow finds it by this name

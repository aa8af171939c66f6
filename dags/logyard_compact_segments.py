"""Compact closed segments with Spark under leases, every night; the brokers swap the results in."""

from logyard.dags.factories.compact_segments import compact_segments_dag

dag = compact_segments_dag()  # airflow finds it by this name

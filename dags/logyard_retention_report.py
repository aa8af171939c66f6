"""What topics keep, every day: bytes, records, limits, records past their time, and what looks wrong."""

from logyard.dags.factories.retention_report import retention_report_dag

dag = retention_report_dag()  # airflow finds it by this name

"""Report daily what topics retain: bytes, records, limits, records past their retention, suspicious settings."""

from logyard.dags.factories.retention_report import retention_report_dag

dag = retention_report_dag()  # airflow finds it by this name

"""Keep an export's table in an Iceberg catalog small, every night."""

from logyard.dags.factories.maintain_table import maintain_table_dag

dag = maintain_table_dag()  # airflow finds it by this name

"""Export new records to Parquet (or Delta Lake, or Iceberg) with Spark, every hour; no record is exported twice."""

from logyard.dags.factories.export_segments import export_segments_dag

dag = export_segments_dag()  # airflow finds it by this name

"""Export records to Parquet with Spark, every hour; incremental, nothing is exported twice."""

from logyard.dags.factories.export_segments import export_segments_dag

dag = export_segments_dag()  # airflow finds it by this name

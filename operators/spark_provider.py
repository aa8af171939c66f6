"""Airflow's Spark provider, or one line that says how to install it."""

try:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
except ModuleNotFoundError as _problem:
    raise ImportError(
        "Logyard's Spark operators need apache-airflow-providers-apache-spark: pip install 'logyard[airflow-spark]'"
    ) from _problem

__all__ = ["SparkSubmitHook", "SparkSubmitOperator"]

"""Create, alter, expand and delete a topic from one form; steps that the form does not ask for do nothing."""

from logyard.dags.factories.topic_lifecycle import topic_lifecycle_dag

dag = topic_lifecycle_dag()  # airflow finds it by this name

"""Create a topic and wait until every partition has a leader."""

from logyard.dags.factories.create_topic import create_topic_dag

dag = create_topic_dag()  # airflow finds it by this name

"""Give partitions back to their preferred leaders; unclean elections only where that is asked for."""

from logyard.dags.factories.elect_leaders import elect_leaders_dag

dag = elect_leaders_dag()  # airflow finds it by this name

"""Let a user write and read topics: a password (SCRAM), ACLs and limits, from one form."""

from logyard.dags.factories.grant_access import grant_access_dag

dag = grant_access_dag()  # airflow finds it by this name

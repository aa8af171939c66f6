"""Let a user log in by SCRAM, change the password, or delete the user."""

from logyard.dags.factories.alter_user import alter_user_dag

dag = alter_user_dag()  # airflow finds it by this name

# One image for every service of docker-compose.yaml: brokers, Airflow's components, Spark's master and workers.
FROM python:3.11-slim-bookworm

RUN apt-get update \
    && apt-get install -y --no-install-recommends make openjdk-17-jre-headless procps tini \
    && rm -rf /var/lib/apt/lists/*

RUN useradd --create-home --uid 1000 logyard \
    && mkdir -p /var/lib/logyard /var/lib/airflow/logs /var/lib/spark /var/lib/logyard-exports /run/logyard /run/airflow /run/spark \
        /empty /opt/my-dags \
    && chown -R logyard /var/lib/logyard /var/lib/airflow /var/lib/spark /var/lib/logyard-exports /run/logyard /run/airflow /run/spark

# The packages are a layer of their own: it stays while only sources change.
WORKDIR /opt/logyard
COPY requirements.lock pyproject.toml ./
COPY scripts scripts
RUN scripts/setup --packages-only

COPY README.md LICENSE ./
COPY broker broker
COPY operators operators
COPY plugins plugins
COPY dags dags
COPY spark_jobs spark_jobs
COPY logyard logyard
RUN scripts/setup

COPY docker docker

# Compiled loops are unpickled, so nobody but their user may write where they are kept.
RUN install -d -o logyard -m 700 /var/cache/logyard-kernels

ENV PATH=/opt/logyard/.venv/bin:$PATH \
    AIRFLOW_HOME=/var/lib/airflow \
    PYSPARK_PYTHON=/opt/logyard/.venv/bin/python \
    NUMBA_CACHE_DIR=/var/cache/logyard-kernels \
    SPARK_WORKER_DIR=/var/lib/spark
USER logyard
# Compiled for processors as that of this machine; on another kind a container compiles for itself, once.
RUN python -m logyard.spark_jobs.warm
ENTRYPOINT ["tini", "--"]

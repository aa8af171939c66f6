# `make demo` and `make test` set everything up by themselves; `make help` lists the rest.
.DEFAULT_GOAL := help
.PHONY: help setup demo up down check lint types fast test test-unit test-simulation test-integration test-matrix test-reference proof dist bench sim fuzz clean reference bench-reference
BIN := .venv/bin
# Compiled files are kept (git ignores them): without them, every worker of every run compiles the tests again, and
# every broker that a test starts the product.
unexport PYTHONDONTWRITEBYTECODE

FAST := tests/architecture tests/properties tests/unit
# AGAIN=1: a test that fails runs once more, and is named if it passes then. For CI, where one of some ten thousand
# timed by a shared machine would keep a landing out; whoever reads the name finds the race.
PYTEST := $(BIN)/python -m pytest -q $(if $(AGAIN),--reruns 1 -rR)
# Two workers; one that has nothing left takes from the other.
TWO := -n 2 --dist worksteal
# Three where tests wait for much of their time: for brokers, sessions that end, processes that they start.
THREE := -n 3

# SECURE=1: with TLS, log-ins and ACLs.
SECURELY := $(if $(filter-out 0 no false,$(SECURE)),--secure)

help: ## what can be made
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 24

setup: ## .venv from requirements.lock (at once when nothing changed)
	@scripts/setup

demo: setup ## the main job on real data, on a platform of its own, then a table of what was done; SECURE=1: on a secured one
	@$(BIN)/logyard demo $(SECURELY)

up: setup ## ZooKeeper, three brokers and Airflow, left running; prints their addresses; SECURE=1: with TLS, log-ins and ACLs
	@$(BIN)/logyard up $(SECURELY)

down: ## end what `make up` (or an interrupted demo) left running
	@if [ -x $(BIN)/logyard ]; then $(BIN)/logyard down; fi

check: lint ## format, lint, types, fast tests: under two minutes
	@$(MAKE) --no-print-directory -j 2 types fast

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: setup
	$(BIN)/mypy

fast: setup
	$(PYTEST) $(TWO) -m "not spark and not airflow and not slow" $(FAST)

test: setup ## all of the following, of what is long a short path: under 25 minutes; at its end, how long each took
	@MAKE="$(MAKE)" $(BIN)/python -m tests.stages

test-unit: setup ## what needs no processes, with Airflow's and Spark's parts: units, properties, architecture, scenarios
	$(PYTEST) $(THREE) --dist worksteal -m "not long" $(FAST) tests/scenarios

test-simulation: setup ## real brokers on simulated machines, some seeds
	$(PYTEST) -n 2 --dist loadgroup tests/simulation

test-integration: setup ## real ZooKeeper, brokers, Airflow, Spark; one subject: test-brokers, -controller, -clients, -commands, -platform, -spark, -airflow
	$(PYTEST) $(THREE) --dist loadfile --no-loadscope-reorder -m "not long" tests/integration

test-matrix: setup ## the wheel with another Airflow and another PySpark than the lock's, one version of each
	$(PYTEST) -n 2 --dist loadfile -m "not long" tests/matrix

test-reference: setup ## ours and Apache Kafka's in one cluster, the short path
	$(PYTEST) -m reference_smoke tests/reference/test_smoke.py

# One folder of tests/integration.
test-brokers: setup
test-controller: setup
test-clients: setup
test-commands: setup
test-platform: setup
test-spark: setup
test-airflow: setup
test-%: setup
	$(PYTEST) -m "not long" tests/integration/$*

proof: setup ## everything, any length; what passed at this commit is not run again; build/proof.json
	$(BIN)/python tests/proof.py

dist: setup ## the wheel and the sdist of what git tracks, in dist/
	@scripts/dist

bench: setup ## CPU per request, throughput, latency, memory, starts: one table, beside ceilings; SHORT=1: a quick look; build/bench.json
	@$(BIN)/python -m tests.benchmarks.run $(if $(filter-out 0 no false,$(SHORT)),--short)

reference: setup ## Apache Kafka's own jars out of Maven Central, once, for what runs beside it
	@$(BIN)/python -m tests.reference.fetch

bench-reference: setup ## the same work on our brokers and on Apache Kafka's; build/bench-reference.json
	@$(BIN)/python -m tests.benchmarks.reference

SEED ?= 1
STEPS ?= 2000
sim: setup ## one seed of the simulator, SEED=n STEPS=m: real brokers on simulated machines, with faults
	@$(BIN)/python -m tests.simulation.run --seed $(SEED) --steps $(STEPS)

FUZZ_SECONDS ?= 600
fuzz: ## coverage-guided fuzzing of what strangers send, FUZZ_SECONDS=600 a target
	@scripts/setup --fuzz
	@$(BIN)/python -m tests.fuzz.run --seconds $(FUZZ_SECONDS)

clean: down ## remove everything that was built: .venv, .logyard, caches
	rm -rf .venv .logyard build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .numba_cache

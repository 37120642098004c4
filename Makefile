# One entry for people and CI: every target sets up what it needs.
VENV    := .venv
BIN     := $(VENV)/bin
PYTHON  ?= python3
WORKDIR ?= .demo
FLINK_JOB_SERVER ?= .cache/flink/job-server.jar
PYTEST  := $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help setup demo check format test test-slow notebooks flink-test prism-test airflow-test bench-data bench-index bench-refresh bench-quality bench-serve bench-training lock proto clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

setup: $(VENV)/.installed ## virtual environment in .venv, from requirements.lock

$(VENV)/.installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if (3, 11) <= v[:2] <= (3, 13) else f"recsys-cg needs Python 3.11 to 3.13, and $(PYTHON) is {v[0]}.{v[1]}: make PYTHON=python3.11 $(MAKECMDGOALS)")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --only-binary :all: --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup ## the whole main job on MovieLens 100K, ending with one lookup and a report
	$(BIN)/python -m pipelines.demo --workdir $(WORKDIR)

check: setup ## lint, format, types, import rules, dead code; writes nothing
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --no-cache --check .
	$(BIN)/mypy --cache-dir=/dev/null
	$(BIN)/lint-imports --no-cache
	$(BIN)/vulture

format: setup ## rewrite the sources in the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: setup ## the default suite, under 20 minutes on 2 cores
	$(PYTEST)

test-slow: setup ## the tests that take minutes
	$(PYTEST) -m "slow and not flink and not prism and not airflow and not notebook" --timeout 1800

notebooks: setup ## execute every notebook; the results, plots included, go to .cache/notebooks
	$(PYTEST) -m notebook --durations 0 --timeout 1200 tests/notebooks

flink-test: setup ## both Beam jobs on a real Flink, through Beam's job server (Java 17 and Maven)
	PYTHON=$(BIN)/python tests/engines/fetch_flink.sh $(FLINK_JOB_SERVER)
	FLINK_JOB_SERVER=$(FLINK_JOB_SERVER) $(PYTEST) -m flink --timeout 1800 tests/engines

prism-test: setup .cache/prism/prism ## both Beam jobs on Prism, Beam's runner in Go (needs Go; built in minutes)
	PRISM=.cache/prism/prism $(PYTEST) -m prism --timeout 1800 tests/engines

airflow-test: setup .cache/airflow/.installed ## the schedules in a real Airflow 3, in an environment of its own
	AIRFLOW_PYTHON=.cache/airflow/bin/python $(PYTEST) -m airflow --timeout 1800 tests/schedule

.cache/airflow/.installed: pipelines/schedule/airflow/requirements.lock | setup
	$(PYTHON) -m venv .cache/airflow
	.cache/airflow/bin/python -m pip install --quiet --only-binary :all: --require-hashes -r $<
	@touch $@

.cache/prism/prism: | setup
	GOBIN=$(CURDIR)/.cache/prism go install github.com/apache/beam/sdks/v2/go/cmd/prism@v$$($(BIN)/python -c 'from importlib.metadata import version; print(version("apache-beam"))')

bench-data: setup ## the dataset job against pandas and polars; QUICK=1 for a small version
	$(BIN)/python -m tests.benchmarks.bench_data

bench-index: setup ## the index against faiss, hnswlib and usearch; SIZES=, SYSTEMS=, ONLY=build; QUICK=1 for a small version
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/python -m tests.benchmarks.bench_index

bench-refresh: setup ## a release refreshed day by day on the clicks in GLOBO=FOLDER; QUICK=1 for a simulated portal
	$(BIN)/python -m tests.benchmarks.bench_refresh

bench-quality: setup ## retrieval quality against baselines and stock TFRS; SETS=, SEEDS=, VARIANTS=; QUICK=1 for a small version
	$(BIN)/python -m tests.benchmarks.bench_quality

bench-training: setup ## training speed, memory and time to a known recall against stock TFRS; QUICK=1 for a small version
	$(BIN)/python -m tests.benchmarks.bench_training

bench-serve: setup ## lookups against the TFRS way, and the service against its own limit; QUICK=1 for a small version
	$(BIN)/python -m tests.benchmarks.bench_serve

proto: setup ## write the gRPC messages anew from lookup.proto
	$(BIN)/uv run --no-project --with grpcio-tools==1.76.0 python -m grpc_tools.protoc -I. --python_out=. recsys_cg/serving/rpc/lookup.proto

lock: setup ## resolve pyproject.toml anew into requirements.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --extra dev --no-annotate --no-header --generate-hashes pyproject.toml --output-file requirements.lock
	$(BIN)/uv pip compile --no-config --quiet --universal --python-version 3.11 --no-annotate --no-header --generate-hashes pipelines/schedule/airflow/requirements.in --output-file pipelines/schedule/airflow/requirements.lock

clean: ## remove the virtual environment, the demo and all caches
	rm -rf $(VENV) $(WORKDIR) .bench .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

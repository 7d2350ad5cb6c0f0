# What one does with this repository, one word each. `make` alone lists the words.
#
# Everything happens in .venv, which scripts/install makes with pip alone; every word that needs it makes it first:
# `up` the core, or with SPARK=1 Spark too, and every other word all of it.
# Another interpreter than python3: make up PYTHON=python3.13

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help install packages up up-tiered test test-full check bench bench-quick bench-native bench-spark bench-transactions soak build clean fmt vet all

BIN := .venv/bin
WITH_SPARK := $(filter-out 0 no,$(SPARK))
export PYTHON

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: ## make .venv with Tailrace, Spark and the test tools in it; a second call does nothing
	@scripts/install all

packages: ## install the Debian packages that tests use, if they are missing and we are root
	@scripts/install-packages
	@scripts/fetch-promtool

up: ## run a broker with demo traffic; with SPARK=1 pipelines archive it, if Java is there; Ctrl-C stops it
	@$(if $(WITH_SPARK),scripts/install-packages spark)
	@scripts/install $(if $(WITH_SPARK),spark,core)
	@$(BIN)/tailrace up --demo$(if $(WITH_SPARK), --pipelines)

up-tiered: ## run a broker with demo traffic on its own PostgreSQL and Redis; Ctrl-C stops all three
	@scripts/install-packages tiered
	@scripts/install core
	@$(BIN)/python -c 'import asyncpg, hiredis' 2>/dev/null || $(BIN)/python -m pip install --quiet asyncpg hiredis
	@$(BIN)/python scripts/up-tiered -- --demo

test: packages install ## install all that is needed, then run the tests
	@scripts/test

test-full: packages install ## the same with the long and heavy tests, under coverage
	@scripts/test --full

check: vet ## the gate before every commit: format, lint, types, import contracts, fast tests
	$(BIN)/pytest -q -m "not heavy and not slow"

vet: install ## format, lint, types and import contracts, without the tests
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

fmt: install ## format the code and fix what the linter can fix
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

bench: install ## measure Tailrace beside its peers, as far as they can be had; about half an hour
	$(BIN)/python -m bench

bench-quick: install ## the same in a few minutes, and less to be trusted
	$(BIN)/python -m bench --quick

bench-native: install ## native messaging beside RabbitMQ, NATS and Redis, with their own clients; six minutes
	@$(BIN)/python -c 'import aio_pika, hiredis, nats, redis' 2>/dev/null || \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	$(BIN)/python -m bench.native

bench-spark: install ## topics through Spark, beside Spark's own Kafka source where Maven has it; about ten minutes
	$(BIN)/python -m bench.spark

bench-transactions: install ## transactions per second and how late readers are, beside Apache Kafka; about six minutes
	$(BIN)/python -m bench.transactions

soak: install ## one broker at half load for about twenty minutes: does anything grow?
	$(BIN)/python -m bench.soak

build: install ## wheel and source archive into dist/
	rm -rf build dist
	$(BIN)/python -m build

all: fmt vet build test ## format, vet, build, test

clean: ## remove what builds and tests leave behind; .venv stays
	rm -rf build dist src/*.egg-info .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache \
		.import_linter_cache .venv/.installed src/tailrace/records/_compiled*.so src/tailrace/records/_compiled.c \
		src/tailrace/spark/codec/_compiled*.so src/tailrace/spark/codec/_compiled.c
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# The tests start hundreds of commands and workers; without bytecode each would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  \1\t/' | expand -t 18

$(STAMP): pyproject.toml .ci/constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing boxengine and what its tests need into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c .ci/constraints.txt -e '.[kafka,http,embedded,web,mysql,docs,dev]'
	@touch $@

install: $(STAMP) ## create .venv and install everything for development

kit-tools: $(STAMP) ## what checks the deployment kits: Helm, the schemas of Kubernetes, a parser of Compose files, Grafana's types; wheels of 100 MB, without which these tests are skipped
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary :all: -c .ci/constraints.txt helm-python-sdk kubernetes-validate compose-spec grafana-foundation-sdk

demo: $(STAMP) ## watch committed rows travel to a transport, on servers of its own
	@$(BIN)/boxengine demo $(DEMO_ARGS)

test: $(STAMP) ## the test suite, without what tests/slow.py names; starts what it needs (TEST_ARGS="tests/cli": all of a folder)
	@$(BIN)/python -m pytest $(TEST_ARGS)

test-slow: $(STAMP) ## what tests/slow.py names: further databases, faults, guides and drills
	@$(BIN)/python -m pytest --only-slow $(TEST_ARGS)

lint: $(STAMP) ## style, types, direction of imports, dependencies that fit together
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python -m pip check --disable-pip-version-check

format: $(STAMP) ## let ruff mend style
	@$(BIN)/ruff check --fix --quiet .
	@$(BIN)/ruff format .

docs: $(STAMP) ## the documentation as a site, in site/ (then: python -m http.server -d site); fails at a broken link
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

golden-sql: $(STAMP) ## write every SQL statement anew into the folders called golden, to be read as a difference
	@BOXENGINE_REWRITE_SQL=1 $(BIN)/python -m pytest tests/unit/sql tests/integration/jobs/test_statements.py -n 0 -q

screenshots: $(STAMP) ## those of the console in docs/images, made by its tests
	@BOXENGINE_SCREENSHOTS=docs/images $(BIN)/python -m pytest tests/web/browser -n 0 -q

moving-picture: $(STAMP) ## the film of the demo in docs/images, filmed anew
	@$(BIN)/python -m tests.docs.moving_picture docs/images/demo.svg

bench: $(STAMP) ## ratios to the floor programs, as a table
	@$(BIN)/python -m bench

bench-quick: $(STAMP) ## the same in under five minutes
	@$(BIN)/python -m bench --quick

bench-peers: $(STAMP) ## boxengine beside other queues, in alternating rounds; installs them at the first use (PEERS_ARGS="--quick pgqueuer")
	@$(BIN)/python -m bench.peers $(PEERS_ARGS)

console-load: $(STAMP) ## ten tabs of the console over 5,000,000 rows under a worker (CONSOLE_ARGS="--rows 500000 --rounds 1 --seconds 30")
	@$(BIN)/python -m bench.console $(CONSOLE_ARGS)

console-fuzz: $(STAMP) ## the console's API under schemathesis for ten minutes (FUZZ_ARGS="--minutes 2 --seed 7")
	@$(BIN)/python -m tests.web.fuzz $(FUZZ_ARGS)

soak: $(STAMP) ## simulated histories with faults for ten minutes (SOAK_ARGS="--minutes 60")
	@$(BIN)/python -m tests.simulation soak $(SOAK_ARGS)

chaos: $(STAMP) ## faults against real servers and worker processes, a sample in 20 minutes (CHAOS_ARGS=--all: every one; CHAOS_ARGS="--storage log --partitions")
	@$(BIN)/python -m tests.chaos --minutes 20 $(CHAOS_ARGS)

chaos-mariadb: $(STAMP) ## the same on MariaDB, all faults that apply (CHAOS_ARGS="--quick": ten minutes)
	@$(BIN)/python -m tests.chaos --database mariadb --all --minutes 40 $(CHAOS_ARGS)

chaos-jobs: $(STAMP) ## 20,000 long jobs of 10 ms to 30 s under killed, suspended and unaware workers and crashed servers (CHAOS_ARGS="--jobs 2000 --times 2")
	@$(BIN)/python -m tests.chaos.jobs $(CHAOS_ARGS)

proof-django: $(STAMP) ## 10,000 orders of a Django project, a fifth rolled back, its worker killed twice (PROOF_ARGS="--orders 1000")
	@$(BIN)/python -m tests.integration.django.proof $(PROOF_ARGS)

proof-dashboard: $(STAMP) ## a real Prometheus scrapes a real worker and consumer, with and without --processes: every query of the dashboard has data
	@$(BIN)/python -m tests.deployment.dashboard

proof-alerts: $(STAMP) ## each alert rings in a real Prometheus for its real cause, and stops after the runbook's remedy, at thirty times the pace
	@$(BIN)/python -m tests.deployment.alerting

proof-image: $(STAMP) ## the Dockerfile's steps in a clean Debian root, and a worker in it; needs root and debootstrap
	@$(BIN)/python -m tests.deployment.image

proof-order: $(STAMP) ## 64 writers of the same keys, with and without locks, and SIGKILL: 2,000,000 items each, in order and none lost (PROOF_ARGS="--items 100000")
	@$(BIN)/python -m tests.proofs.order $(PROOF_ARGS)

proof-steady: $(STAMP) ## a partitioned log at 5,000 items/s beside transactions of 120 s: room on disk and p99 (PROOF_ARGS="--seconds 60 --open-for 15 --hour 3")
	@$(BIN)/python -m tests.proofs.steady $(PROOF_ARGS)

fuzz-sql: $(STAMP) ## five minutes of random SQL writes into the boxes' tables beside running workers
	@$(BIN)/python -m tests.chaos --faults random-sql --items 60000 --rate 200 $(CHAOS_ARGS)

proof-convert: $(STAMP) ## a box goes from table to log and back under load, with 5,000 items and more
	@BOXENGINE_CONVERTED_ITEMS=5000 $(BIN)/python -m pytest tests/integration/converting -n 0 $(TEST_ARGS)

proof-subscriptions: $(STAMP) ## one of three subscriptions is stopped for 1,000,000 items: what that costs the others, and how it catches up (PROOF_ARGS="--items 50000")
	@$(BIN)/python -m bench.subscriptions $(PROOF_ARGS)

chaos-kafka: $(STAMP) ## 100,000 items into and out of a real Kafka, with kills and outages (CHAOS_ARGS="--rows normal --items 20000")
	@$(BIN)/python -m tests.chaos.kafka $(CHAOS_ARGS)

.PHONY: help install kit-tools demo test lint format docs golden-sql screenshots moving-picture bench bench-quick bench-peers console-load console-fuzz soak chaos chaos-mariadb chaos-jobs proof-django proof-dashboard proof-alerts proof-convert proof-image proof-order proof-steady proof-subscriptions fuzz-sql chaos-kafka

# Two commands do everything on a fresh machine: `make demo` and `make test`.
# Each makes .venv, installs from a lock with hashes, and runs. Stamps inside .venv make the next time instant.

.DEFAULT_GOAL := help
.PHONY: help demo test feature-table test-aws chaos install check format bench build lock clean

# Another Python: make PYTHON=/path/to/python test
export PYTHON

# Containers often set it. The tests start hundreds of Pythons, and each would compile Laneway again.
export PYTHONDONTWRITEBYTECODE :=

# When the Python that .venv was made with is gone, so is what the stamps say.
$(shell [ -x .venv/bin/python ] || rm -f .venv/*.stamp)

PIP := .venv/bin/python -m pip --disable-pip-version-check --quiet

help: ## list these commands
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-16s%s\n", $$1, $$2 }'

demo: .venv/run.stamp ## see jobs running, live
	.venv/bin/laneway demo

test: .venv/dev.stamp ## run the tests; ARGS="-k retry" picks some, ARGS="-n 0" runs one at a time
	.venv/bin/python -m pytest -n 4 --dist worksteal $(ARGS)

feature-table: .venv/dev.stamp ## write the table of features in docs/brokers.md again, from the capabilities
	.venv/bin/python -m tests.support.feature_table

# It costs a few cents. AWS_ENDPOINT_URL leads to another server, such as moto's.
test-aws: .venv/dev.stamp ## run the tests of SQS, DynamoDB and SNS on your AWS account, under names of their own
	LANEWAY_TEST_AWS=1 .venv/bin/python -m pytest -n 4 -o faulthandler_timeout=0 tests/integration/aws $(ARGS)

# New sequences each time; the seeds of the simulator are always the same.
chaos: .venv/dev.stamp ## kill workers, lose messages, and try every sequence: what make test does in a small way
	LANEWAY_CHAOS=1 LANEWAY_SEEDS=200 LANEWAY_SEQUENCES=5000 \
	    .venv/bin/python -m pytest --durations=5 -s -o faulthandler_timeout=0 tests/chaos tests/simulation tests/property $(ARGS)

install: .venv/dev.stamp ## make .venv with all that development needs

check: .venv/dev.stamp ## lint, format and types
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy --strict
	.venv/bin/basedpyright

format: .venv/dev.stamp ## put the code into its format, and fix what ruff can fix
	.venv/bin/ruff check --fix
	.venv/bin/ruff format

# Redis needs the servers that tests start. PEERS=/path/to/python compares with other systems, see bench/redis_peers.py.
bench: .venv/dev.stamp ## measure how fast jobs go in and out, what idling costs, and what a long life does to memory
	.venv/bin/python bench/drain.py $(ARGS)
	.venv/bin/python bench/sqlite_enqueue.py $(if $(PEERS),--peers $(PEERS))
	.venv/bin/python bench/idle.py
	.venv/bin/python bench/keys.py
	.venv/bin/python bench/memory.py
	.venv/bin/python bench/first_enqueue.py
	.venv/bin/python bench/redis_drain.py
	.venv/bin/python bench/redis_enqueue.py $(if $(PEERS),--peers $(PEERS))
	.venv/bin/python bench/redis_publish.py
	.venv/bin/python bench/redis_latency.py $(if $(PEERS),--peers $(PEERS))
	.venv/bin/python bench/redis_memory.py
	.venv/bin/python bench/redis_depth.py
	.venv/bin/python bench/redis_cluster.py
	.venv/bin/python bench/sqs_requests.py
	.venv/bin/python bench/fairness.py
	.venv/bin/python bench/events.py

build: .venv/dev.stamp ## make the wheel and the sdist in dist/
	.venv/bin/python -m build --no-isolation --outdir dist

lock: ## rewrite the locks; ARGS=--upgrade moves the pins
	scripts/lock $(ARGS)

clean: ## delete all that make has made, .venv too
	rm -rf .venv dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# A half-made .venv would look whole to the next run, so it goes.
.venv/bin/python:
	@scripts/system-packages run
	@python=$$(scripts/find-python) && echo "Making .venv with $$python" && \
	    { "$$python" -m venv --clear .venv || { rm -rf .venv; exit 1; }; }

# Enough to run Laneway itself; `make demo` waits for no more.
.venv/run.stamp: requirements/run.lock pyproject.toml | .venv/bin/python
	@echo "Installing requirements/run.lock"
	@$(PIP) install --require-hashes -r requirements/run.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

.venv/dev.stamp: .venv/run.stamp requirements/dev.lock scripts/system-packages
	@scripts/system-packages test
	@echo "Installing requirements/dev.lock"
	@$(PIP) install --require-hashes -r requirements/dev.lock
	@touch $@

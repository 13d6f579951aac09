# `make demo` and `make test` do all their own set-up: they need python3 (3.11 or newer) and make.

PYTHON ?= python3
BIN := .venv/bin
# Written last, so that a set-up that was cut short is seen, and started afresh.
INSTALLED := .venv/installed
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header
IMAGE_LOCKS := deploy/docker/locks
BENCHMARKS := config_push fairness gateway gateway_push overload quota_race telemetry agent rollout batches rules paging alert_storm web

# A shell's own Python set-up must not leak into ours. Without compiled files each process compiles all that it imports.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV DJANGO_SETTINGS_MODULE PIP_USER PIP_TARGET PIP_PREFIX
unexport PYTHONDONTWRITEBYTECODE PYTHONOPTIMIZE

.DEFAULT_GOAL := help
.PHONY: help env demo demo-check test lint types coverage bench pictures lock docs clean

help:  ## Show this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

env: $(INSTALLED)  ## Make the Python environment in .venv, as requirements.lock says

$(INSTALLED): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Headworks needs Python 3.11 or newer, and $(PYTHON) is older or absent: name another with make PYTHON=..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -q && apt-get install -y -q --no-install-recommends python3-venv; \
	  else \
	    echo "$(PYTHON) cannot make environments: install its venv package (Debian: sudo apt-get install python3-venv)"; exit 1; \
	  fi
	@[ -f $@ ] || $(PYTHON) -m venv --clear .venv
	@rm -f $@
	$(BIN)/python -m pip --disable-pip-version-check install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip --disable-pip-version-check install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

demo: env  ## Start everything on this machine and print the address and log-in
	$(BIN)/headworks demo

demo-check: env  ## Start the demo, walk through its loops, print each step with its time, stop
	$(BIN)/headworks demo --check

test: env lint types  ## Lint, types, then all tests: import rules, translations, browser, SQLite, PostgreSQL
	$(BIN)/python -m tests

lint: env  ## Check the style of the Python files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .

types: env  ## Check the types
	$(BIN)/mypy

coverage: env  ## Run all tests and print the lines and branches that none of them reached
	$(BIN)/coverage erase
	$(BIN)/coverage run -m tests
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

bench: env  ## Run every benchmark; fails if one misses its targets
	@failed=0; for name in $(BENCHMARKS); do \
	  $(BIN)/headworks bench $$name || failed=1; done; exit $$failed

pictures: env  ## Take a picture of every page, in every look, into build/pictures
	$(BIN)/python -m tests.web.pictures build/pictures

lock: env  ## Write requirements.lock anew from pyproject.toml, and of it each image's own part
	$(LOCK) --all-extras pyproject.toml -o requirements.lock
	for image in server:s3:keda gateway agent; do \
	  $(LOCK) --no-annotate -c requirements.lock $$(echo $$image | sed -E 's/(^|:)/ --extra /g') pyproject.toml \
	    -o $(IMAGE_LOCKS)/$${image%%:*}.lock || exit 1; done
	echo setuptools | $(LOCK) --no-annotate -c requirements.lock - -o $(IMAGE_LOCKS)/build.lock

docs: env  ## Write the generated pages of docs/ and files of deploy/ anew
	$(BIN)/python -m docs.generate

clean:  ## Remove the environment and what the tools left behind
	rm -rf .venv build *.egg-info .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

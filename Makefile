# Two commands to begin with: `make demo` and `make test`.
VENV   ?= .venv
PYTHON ?= python3
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: help setup setup-dev demo demo-slurm test test-all fast rest compiled soak differential explore mutants lint bench size schema docs man site packages package-tools slurm-packages clean

help:
	@echo "make demo        measure a real kernel here, fit it, advise a job, run it (under 2 minutes)"
	@echo "make demo-slurm  the same on a real Slurm cluster on this machine (root, Debian)"
	@echo "make test        set up, lint, type-check, run the fast tests and a short way through a real Slurm"
	@echo "make test-all    that, and all tests on clusters, of packages and in terminals"
	@echo "make lint        style, types, directions of imports, and the rules of tests/lint"
	@echo "make differential  submit requests without and with the advisor, print how many differ"
	@echo "make soak        the same with new requests for an hour (MINUTES=60)"
	@echo "make explore     the property tests with new examples for an hour (MINUTES=60)"
	@echo "make mutants     put faults into the decision's code, name those that no test notices"
	@echo "make bench       print the benchmarks' ratios"
	@echo "make size        count what there is to read, and weigh a fresh installation (network)"
	@echo "make docs        write what is generated: docs/cli.md, docs/reference, the schemas"
	@echo "make site        the documents as a site that can be searched, into build/site (network: its tools)"
	@echo "make packages    wheel, deb and rpm for a site, with man pages and units, into dist/"
	@echo "make man         write the man pages into build/man/man1"

setup: $(READY)

setup-dev: $(READY)-dev

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "on Debian: apt-get install python3-venv"; exit 1; }

$(READY): pyproject.toml lab/pyproject.toml | $(VENV)/bin/python
	@echo "setting up $(VENV) ..."
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -e . -e ./lab
	@touch $@

$(READY)-dev: pyproject.toml lab/pyproject.toml | $(VENV)/bin/python
	@echo "setting up $(VENV) for tests ..."
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -e '.[dev]' -e ./lab
	@touch $@ $(READY)

demo: setup
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python examples/demo.py

demo-slurm: setup slurm-packages
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python examples/demo_slurm.py

# What takes minutes, by pytest's markers; `make test` goes without.
LONG   := cluster or package or terminal or slow or gpu or postgresql
PYTEST := $(BIN)/python -m pytest
MANY    = -rs --numprocesses $(PROCESSES) --dist loadfile --no-loadscope-reorder

# Libraries and Slurm are installed at once; the types are checked by one process, beside the
# tests' own.
test:
	@$(MAKE) --no-print-directory --jobs 2 setup-dev slurm-packages
	@$(MAKE) --no-print-directory --jobs 2 lint fast

test-all: test
	@$(MAKE) --no-print-directory rest

fast: PROCESSES := 4
fast: compiled
	@$(PYTEST) $(MANY) -m "not ($(LONG))"

# More of them: jobs on a cluster mostly wait.
rest: PROCESSES := 6
rest: compiled package-tools slurm-packages
	@$(PYTEST) $(MANY) -m "$(LONG)"

# Compiled once after a change, here: hundreds of programs are started, some by users who may not write
# to this tree. So are the tests: each of the four processes would take twenty seconds for that.
compiled: $(VENV)/.compiled

$(VENV)/.compiled: $(READY)-dev $(shell find advisor tui lab hooks db tests -name '*.py' 2>/dev/null)
	@$(BIN)/python -m compileall -q advisor tui lab hooks db tests
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest --collect-only -qq > /dev/null || :
	@touch $@

# Requests on a real Slurm, each without and with the advisor: the counts, or new ones for an hour.
MINUTES ?= 60
SEED    ?= $(shell date +%Y%m%d)

differential: setup-dev slurm-packages
	@cd tests/slurm && $(abspath $(BIN))/python -m differential

soak: setup-dev slurm-packages
	@cd tests/slurm && $(abspath $(BIN))/python -m differential --soak $(MINUTES) --seed $(SEED)

# The property tests, again and again with new examples; the first failure ends it and stays shown.
explore: setup-dev
	@end=$$(($$(date +%s) + 60 * $(MINUTES))); while [ $$(date +%s) -lt $$end ]; do \
	    $(BIN)/python -m pytest -m hypothesis --hypothesis-profile explore --numprocesses 2 tests \
	    || exit 1; done

mutants: setup-dev
	@$(BIN)/python -m tests.mutation

lint: setup-dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python -m tests.lint

size: setup
	@$(BIN)/python benchmarks/size.py --install

bench: setup
	@for b in $(filter-out benchmarks/unchanged.py,$(wildcard benchmarks/*.py)); do echo "== $$b"; $(BIN)/python $$b || exit 1; done

schema: setup
	@$(BIN)/python -m advisor.store.schema > db/schema.sql
	@$(BIN)/python -m advisor.policy.jsonschema policy > config/policy.schema.json
	@$(BIN)/python -m advisor.policy.jsonschema site > config/site.schema.json

docs: schema
	@$(BIN)/python -m docs.generator

man: setup
	@$(BIN)/python -m docs.generator man build/man/man1

# Opened from the folder it needs no server, and it asks nobody else.
site: setup
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -e '.[site]'
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet && echo build/site/index.html

# All that a site's hosts need in one file: the libraries of $(VENV) are inside. The hosts need the
# same Python, 3.11 say; where it is elsewhere there: make packages SITE_PYTHON=/sw/bin/python3.11
packages: setup package-tools
	@$(BIN)/python -m release $(if $(SITE_PYTHON),--interpreter $(SITE_PYTHON))

package-tools:
	@sh release/tools.sh

# Debian's Slurm, for the tests on a real cluster; elsewhere those tests say why they are skipped.
slurm-packages:
	@sh tests/slurm/packages.sh

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .hypothesis

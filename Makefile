# Everything here works from a fresh clone with Python >= 3.11, git and make alone, and is
# quick the second time. `make help` lists what there is.
#
#   PYTHON=python3.12   the Python that the virtual environment is made with
#   VENV=.venv          where that environment lies; it is made and filled on demand
#   TESTS=…             arguments for pytest, such as TESTS="-m 'not slow'"
#   ARGS=…              more arguments for `make run`, such as ARGS="~/photos --sift"

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
TESTS ?=
PY := $(VENV)/bin/python

# An environment is taken as it is only when it was made for this folder and this Python
# and still starts: a moved checkout or an upgraded Python gets a new one.
export MADE_FOR := $(CURDIR) $(PYTHON)
STALE := stale
ifeq ($(shell cat '$(VENV)/.made-for' 2> /dev/null),$(MADE_FOR))
STALE := $(shell '$(PY)' -c '' 2> /dev/null || echo stale)
endif

.DEFAULT_GOAL := help
.PHONY: help run test lint types unit bench bench-full coverage soak examples clean stale

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | while IFS='|' read -r name text; do \
		printf '%-20s %s\n' "$$name" "$$text"; done

run: $(VENV)/.has-examples  ## set up, then run the main job: features of real photographs
	$(PY) examples/photo_features.py $(ARGS)

test: lint types unit  ## set up, then lint, check types and run the tests

lint: $(VENV)/.has-dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: $(VENV)/.has-dev
	$(PY) -m mypy

unit: $(VENV)/.has-dev
	$(PY) -m pytest $(TESTS)

# Without Slurm and the simulator, which tracing makes many times slower.
coverage: $(VENV)/.has-dev  ## the tests with branch coverage; governor, queue and locality must have 100 %
	$(PY) -m coverage erase
	$(PY) -m coverage run -m pytest -m 'not slurm' --ignore-glob='tests/dispatch/test_simulator*'
	$(PY) -m coverage combine --quiet
	$(PY) -m coverage report
	$(PY) -m coverage report --include='lardon/governor/*,lardon/queue/*,lardon/locality/*' --fail-under=100

soak: $(VENV)/.has-dev  ## 10,000 simulated runs of the core of dispatch (some minutes)
	$(PY) -m lardon.dispatch.sim --runs 1700 --shape both --unmatched each

examples: $(VENV)/.has-examples  ## run every example without a screen, one after the other
	@for example in examples/*.py; do \
		printf '\n== %s\n' "$$example"; \
		case "$$example" in *slurm_*) PATH="$$PATH:/usr/sbin" command -v slurmctld > /dev/null || { \
			echo "skipped: Slurm's packages are not installed"; continue; };; esac; \
		$(PY) "$$example" < /dev/null || { printf '%s failed\n' "$$example" >&2; exit 1; }; \
	done

bench: $(VENV)/.has-bench  ## measure against other libraries, side by side, within 3 minutes
	$(PY) -m benchmarks

bench-full: $(VENV)/.has-bench  ## the longer measurements too
	$(PY) -m benchmarks --full

clean:  ## remove what was made here, the virtual environments included
	rm -rf $(VENV) .venv-* build dist htmlcov .coverage .coverage.* photo_features_output slurm_features_output
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp for each set of extras. A failed install leaves no stamp, so the next call tries
# again.
$(VENV)/.has-examples: EXTRAS = examples
$(VENV)/.has-dev: EXTRAS = dev,examples
$(VENV)/.has-bench: EXTRAS = bench
$(VENV)/.has-examples $(VENV)/.has-dev $(VENV)/.has-bench: $(VENV)/.made-for pyproject.toml
	@echo "Installing lardon[$(EXTRAS)] into $(VENV) (a minute or two, once) ..."
	@$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[$(EXTRAS)]' || { \
		echo "make: pip could not install lardon[$(EXTRAS)]: its message is above." >&2; \
		echo "make: the first set-up needs a package index (network, a mirror, or pip's own settings);" >&2; \
		echo "make: once that is mended, say the same make command again." >&2; exit 1; }
	@touch $@

$(VENV)/.made-for: $(if $(STALE),stale)
	@command -v '$(PYTHON)' > /dev/null || { \
		echo "make: '$(PYTHON)' was not found. Install Python 3.11 or newer, or name one:" >&2; \
		echo "make:   make $(MAKECMDGOALS) PYTHON=/path/to/python3" >&2; exit 1; }
	@'$(PYTHON)' -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "make: lardon needs Python 3.11 or newer, and '$(PYTHON)' is" \
			"$$('$(PYTHON)' --version 2>&1). Name a newer one:" >&2; \
		echo "make:   make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; exit 1; }
	@'$(PYTHON)' -c 'import ensurepip, venv' 2> /dev/null || { \
		echo "make: '$(PYTHON)' comes without venv or ensurepip, which make virtual environments." >&2; \
		echo "make: Debian and Ubuntu have them in the package python3-venv." >&2; exit 1; }
	@echo "Making a virtual environment in $(VENV) with $$('$(PYTHON)' --version) ..."
	@if [ -e $@ ]; then rm -rf '$(VENV)'; fi  # one that somebody else made is built upon
	@'$(PYTHON)' -m venv '$(VENV)' || { \
		echo "make: the virtual environment could not be made in $(VENV): see above." >&2; exit 1; }
	@printf '%s\n' "$$MADE_FOR" > $@

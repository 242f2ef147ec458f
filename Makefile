# Every target sets up .venv by itself; a second run installs nothing.
#
# PYTHON      the interpreter that .venv is made from (the lock file is for Python 3.11)
# TORCH_FROM  pip options that say where torch's CPU wheel comes from. The lock file names torch==2.13.0+cpu and no
#             address. Where pip does not know a source of that wheel yet, give PyTorch's own CPU index:
#                 make demo TORCH_FROM="--extra-index-url ADDRESS_OF_PYTORCHS_CPU_INDEX"

PYTHON ?= $(shell command -v python3.11 || command -v python3)
TORCH_FROM ?=

# Written last, so that a half-installed .venv is installed again.
INSTALLED := .venv/.installed

.PHONY: demo test test-all check format lock clean

demo: $(INSTALLED)
	.venv/bin/breakeven demo

test: check
	.venv/bin/pytest -m "not long"

test-all: check
	.venv/bin/pytest

check: $(INSTALLED)
	.venv/bin/ruff format --check
	.venv/bin/ruff check
	.venv/bin/mypy

format: $(INSTALLED)
	.venv/bin/ruff format
	.venv/bin/ruff check --fix

$(INSTALLED): requirements/cpu.lock pyproject.toml
	@case "$$($(PYTHON) --version 2>&1)" in "Python 3.11."*) ;; *) \
		echo "The lock file is for Python 3.11, and '$(PYTHON)' is $$($(PYTHON) --version 2>&1):" \
			"name a Python 3.11, as in: make $(MAKECMDGOALS) PYTHON=/usr/bin/python3.11" >&2; exit 1;; esac
	$(PYTHON) -m venv --clear .venv
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps $(TORCH_FROM) -r requirements/cpu.lock
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

# Newest versions that fit, for CPython 3.11 on Linux x86-64. Needs uv.
lock:
	uv pip compile pyproject.toml --extra cpu --extra dev --override requirements/overrides.txt \
		--python-version 3.11 --upgrade --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
		$(TORCH_FROM) --output-file requirements/cpu.lock

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis

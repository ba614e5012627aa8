# Two commands do everything on a machine with Python 3.11 and make: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FLOWER := .venv-flower
RAY := .venv-ray
BENCH := .venv-bench
BENCH_FLOWER := .venv-bench-flower
export OTAFL_DATA ?= $(wildcard $(CURDIR)/../shared/data)

.PHONY: demo demo-flower test test-flower test-ray slow bench-env bench lint docs clean

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.dev-ready: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

$(VENV)/.docs-ready: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	touch $@

$(FLOWER)/.ready: pyproject.toml   # an environment of its own: Flower pins what others choose
	$(PYTHON) -m venv $(FLOWER)
	$(FLOWER)/bin/python -m pip install --quiet --upgrade pip
	$(FLOWER)/bin/python -m pip install --quiet torch==2.13.0
	$(FLOWER)/bin/python -m pip install --quiet --editable '.[flower]' pytest
	touch $@

$(RAY)/.ready: pyproject.toml      # an environment of its own, for the same reason
	$(PYTHON) -m venv $(RAY)
	$(RAY)/bin/python -m pip install --quiet --upgrade pip
	$(RAY)/bin/python -m pip install --quiet --editable '.[ray]' pytest
	touch $@

demo: $(VENV)/.ready            ## run the main job and print its table
	$(BIN)/otafl compare demo --out runs/demo

demo-flower: $(FLOWER)/.ready   ## a Flower federation of ten real processes over the air; needs mnist.npz in OTAFL_DATA
	$(FLOWER)/bin/python examples/flower/federation.py --nodes 10

test-flower: $(FLOWER)/.ready   ## the bridge to Flower, with real federations
	$(FLOWER)/bin/python -m pytest tests/connect

test-ray: $(RAY)/.ready         ## sweeps on a real Ray cluster of three nodes on this machine, one of them killed
	$(RAY)/bin/python -m pytest tests/connect/test_ray.py

# Compiling takes most of the time of most tests. Without optimisations and by XLA's older emitters it takes a sixth.
HURRY := JAX_DISABLE_MOST_OPTIMIZATIONS=1 \
  XLA_FLAGS="--xla_backend_extra_options=xla_cpu_disable_new_fusion_emitters --xla_cpu_parallel_codegen_split_count=1"
# A process per core, each with one thread for linear algebra; what they compile of Python is kept for their children.
PYTEST := OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest
PER_CORE := -n logical --dist loadfile --no-loadscope-reorder  # short files last

test: $(VENV)/.dev-ready        ## the whole test suite without the slow part; those about bits are compiled as released
	$(HURRY) $(PYTEST) -m "not slow and not released" $(PER_CORE)
	$(PYTEST) -m "released and not slow" $(PER_CORE) tests/core tests/crypto tests/runs tests/tasks

slow: $(VENV)/.dev-ready        ## long reproductions and soak tests
	$(BIN)/python -m pytest -m slow

$(BENCH)/.ready: pyproject.toml    # peers of the benchmark; torch first, and no other package may choose another
	$(PYTHON) -m venv $(BENCH)
	echo torch==2.13.0 > $(BENCH)/constraints.txt
	$(BENCH)/bin/python -m pip install --quiet --upgrade pip
	$(BENCH)/bin/python -m pip install --quiet -c $(BENCH)/constraints.txt torch
	$(BENCH)/bin/python -m pip install --quiet -c $(BENCH)/constraints.txt --editable '.[sca]' opacus tenseal python-flint
	touch $@

$(BENCH_FLOWER)/.ready: pyproject.toml
	$(PYTHON) -m venv $(BENCH_FLOWER)
	echo torch==2.13.0 > $(BENCH_FLOWER)/constraints.txt
	$(BENCH_FLOWER)/bin/python -m pip install --quiet --upgrade pip
	$(BENCH_FLOWER)/bin/python -m pip install --quiet -c $(BENCH_FLOWER)/constraints.txt torch
	$(BENCH_FLOWER)/bin/python -m pip install --quiet -c $(BENCH_FLOWER)/constraints.txt --editable '.[flower]' 'flwr[simulation]==1.41.0'
	touch $@

bench-env: $(BENCH)/.ready $(BENCH_FLOWER)/.ready

bench: bench-env                ## peers and ours in one run: benchmarks/benchmarks.json, docs/performance.md (15 minutes)
	$(BENCH)/bin/python benchmarks/run.py

lint: $(VENV)/.dev-ready        ## style and types
	$(BIN)/ruff check src tests benchmarks examples docs
	$(BIN)/mypy

docs: $(VENV)/.docs-ready       ## the documentation site, warnings are errors
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) $(FLOWER) $(RAY) $(BENCH) $(BENCH_FLOWER) site .cache .pytest_cache .mypy_cache .ruff_cache

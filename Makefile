# Each target does its own set-up: scripts/setup.sh makes .venv the first time, and returns at once after that.
BIN = .venv/bin
# Where this is set, every one of many processes would compile TensorFlow and TFX anew, for five seconds and more.
unexport PYTHONDONTWRITEBYTECODE
# The tests of a file share what they set up, so they stay together. One that hangs fails after ten minutes.
PYTEST = $(BIN)/python -m pytest --dist loadfile --no-loadscope-reorder --timeout 600 --timeout-method signal
# A test of threads or of time may fail on a busy machine. What failed runs again, alone, and both runs show.
LAST_FAILED = --last-failed --last-failed-no-failures none
AGAIN = $(PYTEST) -n 0 $(LAST_FAILED)
CLIENTS = KERAS_BACKEND=jax JAX_PLATFORMS=cpu .venv-frameworks/bin/python -m pytest tests/components/load \
    tests/components/example_gen/sources/test_reader.py tests/components/seams/test_pyarrow.py \
    tests/test_docs_load.py tests/test_docs_readers.py tests/test_docs_snippets.py tests/test_notebooks.py \
    tests/benchmarks/test_gpu.py
QUICK = "not tfx and not slow and not frameworks"
FRAMEWORKS = "frameworks or not (tfx or slow)"
LONG = "(tfx or slow) and not (frameworks or alone or image)"

.DEFAULT_GOAL = help
.PHONY: help setup run test lint quick long test-frameworks test-peers test-image check coverage bench docs dist sbom audit clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

setup:  ## make .venv, or bring it up to date
	@scripts/setup.sh

run: setup  ## digits to a pushed model: the image pipeline on real data
	@$(BIN)/infeed run image

test: quick long  ## all tests but those that only the image runs

quick: setup
	$(PYTEST) -n 2 -m $(QUICK) || { [ $$? -eq 1 ] && $(AGAIN) -m $(QUICK); }

long: setup
	@# Four processes on two cores, because the long tests wait for processes that they start.
	$(PYTEST) -n 4 -m $(LONG) || { [ $$? -eq 1 ] && $(AGAIN) -m $(LONG); }
	$(PYTEST) -n 0 -m alone || { [ $$? -eq 1 ] && $(AGAIN) -m alone; }

test-frameworks:  ## infeed.load with PyTorch, JAX, Keras, Grain, Lightning and Accelerate; ingest of polars, DuckDB and others
	@scripts/setup-frameworks.sh
	$(CLIENTS) -m $(FRAMEWORKS) || { [ $$? -eq 1 ] && $(CLIENTS) -m $(FRAMEWORKS) $(LAST_FAILED); }

test-image: setup  ## the tests that can differ by stack, inside the container image, on TFX 1.21; builds it first
	@scripts/test-image.sh

test-peers: setup  ## the tests of tft and TFX, as they are installed, through the executors of this package
	PYTHONPATH=tests $(PYTEST) -n 2 -p peers.plugin --import-mode=append --pyargs @tests/peers/modules.txt

check: lint quick  ## lint, strict types, walls, the documentation, and the quick tests that need no TFX

lint: setup
	$(BIN)/ruff check
	$(BIN)/python scripts/spelling.py
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/mypy benchmarks scripts
	$(BIN)/lint-imports --no-logo
	$(BIN)/mkdocs build --strict --quiet

coverage: setup  ## what share of the lines is run by the quick tests: to watch the others takes minutes
	$(PYTEST) -n 2 -m $(QUICK) --cov --cov-report=
	@echo "coverage: $$($(BIN)/coverage report --format=total) % of the lines, by the quick tests"

bench: setup  ## every benchmark in small sizes, and one table: some six minutes
	@$(BIN)/python benchmarks/run.py --short

docs: setup  ## the documentation as a site, in site/
	$(BIN)/mkdocs build --strict

dist: setup  ## a source distribution and a wheel, in dist/
	rm -rf build dist # setuptools packs what an older build left
	$(BIN)/python -m build --no-isolation --skip-dependency-check
	$(BIN)/twine check --strict dist/*

sbom: setup  ## the packages of .venv as a CycloneDX list, in sbom.json
	$(BIN)/cyclonedx-py environment --output-reproducible --output-file sbom.json $(BIN)/python

audit: setup  ## known vulnerabilities of the packages of the image
	@scripts/audit.sh || [ $$? -eq 77 ]

clean:  ## remove .venv and all that was built or cached
	rm -rf .venv .venv-frameworks build dist site sbom.json *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage*

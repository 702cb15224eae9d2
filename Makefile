# Each target does its own set-up: scripts/setup.sh makes .venv the first time, and returns at once after that.
BIN = .venv/bin
# Where this is set, every one of many processes would compile TensorFlow and TFX anew, for five seconds and more.
unexport PYTHONDONTWRITEBYTECODE
# Two processes; the tests of a file share what they set up, so they stay together.
PYTEST = $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL = help
.PHONY: help setup run test test-image check clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

setup:  ## make .venv, or bring it up to date
	@scripts/setup.sh

run: setup  ## digits to a pushed model: the image pipeline on real data
	@$(BIN)/infeed run image

test: setup  ## all tests
	$(PYTEST)

test-image: setup  ## the same tests inside the container image, on TFX 1.21; builds it first
	@scripts/test-image.sh

check: setup  ## lint, strict types, and the quick tests that need no TFX
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(PYTEST) -m "not tfx and not slow"

clean:  ## remove .venv and all that was built or cached
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis

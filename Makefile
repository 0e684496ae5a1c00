# make demo   set up what training needs, then classify the papers of Cora
# make test   set up the rest, then run every check, and every test on some of its cases
# make test-all   the same on all of their cases: an hour of two cores
# make docs   build the site into build/site, and check it; a part of make test
# make links  ask all pages outside that the site links to; needs the net
# make setup  only set up, for the tests
# make build  wheel and sdist in dist/, installed and tried in environments of their own
#
# PYTHON chooses the interpreter that .venv is made with. A torch that already is in .venv is kept,
# so that a machine with CUDA can install its own build of torch first (see docs/install.md).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
READY := $(VENV)/.ready
TRAINS := $(VENV)/.trains

.PHONY: demo test test-all check docs links setup build clean

demo: $(TRAINS)
	$(BIN)/outerconv train --family gcn --seeds 3

# Two processes of one thread each: two of two threads wait for each other on two cores.
# Triton's interpreter is for all of a process, and nothing else is to run in it.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

# Tests of guides, examples, pages and pictures, in a tier of their own: their files alone are read.
PAGES := -m pages $(shell grep -rl --include='test_*.py' 'mark\.pages' tests)

test: check docs
	@echo "The library:"
	TRITON_INTERPRET=1 $(PYTEST) tests/kernels/test_triton.py tests/kernels/test_device_calls.py
	$(PYTEST) -m "not pages"
	@echo "Guides, examples, pages and pictures:"
	$(PYTEST) $(PAGES)

test-all: check
	TRITON_INTERPRET=1 $(PYTEST) --all tests/kernels/test_triton.py tests/kernels/test_device_calls.py
	$(PYTEST) --all --draws 300

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check -q .
	$(BIN)/mypy

# The notebooks run too, in a kernel of Jupyter each.
docs: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/sphinx-build -q -W --keep-going -j 2 -b html -d build/doctrees -c site . build/site
	$(BIN)/python site/check.py build/site

links: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/sphinx-build -q -b linkcheck -D nb_execution_mode=off -d build/links/doctrees -c site . build/links

setup: $(READY)

build: $(READY)
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/python tests/try_wheel.py dist

# In two stages, for torch-scatter is compiled, which takes minutes: training does without it, tests
# compare with it.
$(TRAINS): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -q -c constraints.txt -e '.[train]'
	touch $@

# torch is there by then: torch-scatter is compiled against it, which a build in isolation could
# not see.
$(READY): $(TRAINS)
	$(PIP) install -q -c constraints.txt setuptools wheel ninja
	$(PIP) install -q -c constraints.txt --no-build-isolation torch-scatter
	$(PIP) install -q -c constraints.txt -e '.[scatter,triton,train,search,scale,bench,examples,dev,docs]'
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

# make demo: set up and run the demo.  make test: set up and run the tests.  The rest is for working on slotpool.
PYTHON ?= python3
SOURCES := pyproject.toml CMakeLists.txt $(shell find core src -type f -not -name '*.so' -not -path '*/__pycache__/*')

.PHONY: demo test lint core programs storm bench clean

demo: .venv/.slotpool
	.venv/bin/slotpool demo

test: .venv/.test
	.venv/bin/python -m pytest

lint: .venv/.lint
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/python scripts/docs.py --check
	.venv/bin/clang-format --dry-run --Werror $$(find core testkit tests -name '*.cpp' -o -name '*.h')

# the core alone, warnings are errors
core:
	cmake -S . -B build/core -DSLOTPOOL_WERROR=ON
	cmake --build build/core --parallel

# llama.cpp's own programs, for tests/exec: built once into the user's cache; make programs PRESET=dynamic or tsan for others
programs: .venv/.test
	.venv/bin/python scripts/programs.py --preset $(or $(PRESET),release)

# 100,000 evictions under each sanitizer; ThreadSanitizer wants an engine of its own: make programs PRESET=tsan
storm: .venv/.test
	.venv/bin/python -m tests.storm

# every benchmark, each with its record, and docs/performance.md from them; NAMES="simulate rpc_wire" for some, --list for what there is
bench: .venv/.test
	.venv/bin/python -m benchmarks $(NAMES)

clean:
	rm -rf .venv build

.venv/.slotpool: $(SOURCES)
	PYTHON=$(PYTHON) scripts/setup.sh
	touch $@

.venv/.test: $(SOURCES)
	PYTHON=$(PYTHON) scripts/setup.sh test
	touch $@ .venv/.slotpool

.venv/.lint: $(SOURCES)
	PYTHON=$(PYTHON) scripts/setup.sh test,lint
	touch $@ .venv/.test .venv/.slotpool

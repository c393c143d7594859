# Run inside a virtual environment: `make setup` fills it, `make check` runs everything.
PYTHON ?= python
PIP = $(PYTHON) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: setup check lint types test coverage slow bench clean

setup: ## the library and all that its tests need; without a browser the tests of pages are skipped
	$(PIP) --editable '.[test,lint]'
	$(PIP) --no-deps --requirement tests/models.txt
	-scripts/browser.sh

check: lint types test

lint:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

types: ## on an installed copy, where symacct and symacct.rules lie side by side
	rm -rf build
	$(PIP) --no-deps --target build/types .
	cd build/types && $(PYTHON) -m mypy --config-file ../../pyproject.toml -p symacct
	rm -rf build

test:
	$(PYTHON) -m pytest -m "not slow and not gpu" --numprocesses auto --dist loadfile

coverage: ## the same, and which lines and branches no test runs; takes twice as long
	$(PYTHON) -m pytest -m "not slow and not gpu" --numprocesses auto --dist loadfile --cov --cov-report=term

slow: ## the long sweeps; their results are recorded in docs/
	$(PYTHON) -m pytest -m slow

bench:
	$(PYTHON) benchmarks/trace.py
	$(PYTHON) benchmarks/pictures.py

clean:
	rm -rf build dist .coverage .pytest_cache .mypy_cache .ruff_cache

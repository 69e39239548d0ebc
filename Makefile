# Every target works on a fresh clone: it first makes .venv from constraints.txt.
# On Linux without a GPU, this saves gigabytes of CUDA libraries:
#   make test PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
EXTRAS := demo,eval,index,milvus,app,onnx,convert,train,dev

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-slow test-all check fix bench constraints

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "simbert_hf needs Python 3.11 or newer, but $(PYTHON) is missing or older:" \
	       "name another, e.g. make PYTHON=python3.12 test" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[$(EXTRAS)]"
	@touch $@

venv: $(STAMP) ## Make .venv with everything that development needs

demo: $(STAMP) ## Run the demo, offline
	$(BIN)/python scripts/demo.py

test: $(STAMP) ## Run the default tests and all doctests
	$(BIN)/python -m pytest -n auto --dist loadfile -m "not slow and not gpu and not multiproc"

# pytest exits with 5 when it selects nothing, which is no failure here.
test-slow: $(STAMP) ## Run the slow and the multi-process tests
	$(BIN)/python -m pytest -m "(slow or multiproc) and not gpu" || [ $$? -eq 5 ]

test-all: $(STAMP) ## Run all tests but those that need a GPU
	$(BIN)/python -m pytest -m "not gpu"

check: $(STAMP) ## Lint, check the format, check the types
	git diff --check "$$(git hash-object -t tree /dev/null)"  # conflict markers, trailing blanks, in all files
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

fix: $(STAMP) ## Mend what ruff can mend, and format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(STAMP) ## Run the benchmarks that need no data
	$(BIN)/python -m benchmarks

# Resolves anew what pyproject.toml allows, in a venv of its own. The torch version is named by hand.
TORCH ?= 2.13.0
constraints: ## Renew constraints.txt (TORCH=x.y.z picks the torch)
	set -e; tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; \
	$(PYTHON) -m venv "$$tmp"; \
	"$$tmp/bin/pip" install --quiet torch==$(TORCH) ".[$(EXTRAS)]"; \
	{ sed -n '/^#/p' constraints.txt; \
	  "$$tmp/bin/pip" freeze --all --exclude pip --exclude simbert-hf | sed 's/+cpu$$//'; } > "$$tmp/new"; \
	cp "$$tmp/new" constraints.txt

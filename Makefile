# Every target makes its own .venv first; nothing is installed outside it.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

# Tests start hundreds of Python processes. Without bytecode, which containers often turn off, each would compile all that
# it imports, and each of pytest's workers all tests.
unexport PYTHONDONTWRITEBYTECODE

# The folder of a kind of tests, unless ARGS names tests. Collecting all tests takes each of pytest's workers 20 seconds.
of = $(if $(filter tests/%,$(ARGS)),,$(1))

.DEFAULT_GOAL := help
.PHONY: help demo demo-listeners test peers spark crashes check bench bench-broker bench-peers instructions broker native fmt clean

help: ## Show what each target does
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  \033[1mmake %-14s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("streamkit needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.11 <target>")'
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "Python's venv module is missing. On Debian and Ubuntu: sudo apt-get install python3-venv"; exit 1; }
	@echo "Making $(VENV) and installing $$(grep -c == constraints.txt) packages, PySpark and its Java among them (1.3 GB, once)."
	@echo "This usually takes 2 to 4 minutes. pip says what it is doing; after 'Installing collected packages' it prints nothing"
	@echo "for a minute or more."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(STAMP) ## Stream 336,776 flights through the bundled broker and Spark, draw the chart, check every total
	@$(BIN)/python -m samples.pipeline $(ARGS)

demo-listeners: $(STAMP) ## The same flights through listeners, without Spark
	@$(BIN)/python -m samples.flights $(ARGS)

test: $(STAMP) ## Run the tests that need nothing but Python
	@$(BIN)/python -m pytest -n 4 --dist loadgroup -m "not peer and not spark" $(ARGS)

peers: $(STAMP) ## Run the tests against foreign clients and brokers (Java, Maven); skipped with a reason without them
	@$(BIN)/python -m tests.peer
	@$(BIN)/python -m pytest -n 4 --dist loadgroup -m "peer and not spark" $(call of,tests/peer) $(ARGS)

spark: $(STAMP) ## Run the tests on Spark
	@$(BIN)/python -m tests.peer
	@$(BIN)/python -m pytest -m spark $(call of,tests/spark) $(ARGS)

crashes: $(STAMP) ## Kill the broker 200 times under load and write what was found into docs/reliability.md
	@$(BIN)/python -m tests.crash_campaign --report docs/reliability.md $(ARGS)

check: $(STAMP) ## What CI runs: lint, types, import rules, the installed wheel, tests, peers, Spark
	@.ci/check

bench: $(STAMP) ## Measure throughput, CPU per message and latency, beside Apache's broker where Java is
	@$(BIN)/python -m benchmarks $(ARGS)
	@$(BIN)/python -m benchmarks.load
	@$(BIN)/python -m benchmarks.replication

bench-broker: $(STAMP) ## Put the same load on our broker and Apache's in turns: rates, CPU per message, latency
	@$(BIN)/python -m benchmarks.load $(ARGS)

bench-peers: $(STAMP) ## Measure clients, listeners and binders beside those of other systems, each on its own server
	@$(BIN)/python -m benchmarks.peers $(ARGS)

instructions: $(STAMP) ## Count the instructions of the hot paths under Valgrind; fail if one has grown by more than 5 %
	@$(BIN)/python -m benchmarks.instructions $(ARGS)

broker: $(STAMP) ## Start a name server and a broker with their store in ./.streamkit
	@$(BIN)/streamkit broker

native: $(STAMP) ## Build the native core, which makes batches cheap, into .venv; needs Rust 1.90 or newer
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check ./native

fmt: $(STAMP) ## Format and sort imports
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

clean: ## Remove the virtual environment, caches and the local store
	rm -rf $(VENV) .streamkit flights.png .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build

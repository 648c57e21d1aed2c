# Kyanite's commands. Each sets up what it needs by itself; `make` alone lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.SILENT:
.DEFAULT_GOAL := help
.PHONY: help up down install test lint bench profile conformance upstream interop

SETUP = scripts/setup --for $@ && eval "$$(scripts/env)"
# The program, and what containers and container runtimes start for each pod.
PROGRAMS = --package kyanite --package cni --package images
KYANITE = $${CARGO_TARGET_DIR:-target}/release/kyanite

help: ## list these commands
	awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: ## build Kyanite and start a cluster; kubectl then works with the context `kyanite` (NODES=3 for three nodes)
	$(SETUP)
	echo "building (the first time takes about 25 minutes on two cores)"
	scripts/release $(PROGRAMS)
	$(KYANITE) up $(if $(NODES),--nodes $(NODES))

down: ## stop it; the data stays until `kyanite down --purge`
	$(KYANITE) down

install: ## copy the programs to PREFIX (/usr/local), with the names they stand in for and shell completions
	$(SETUP)
	scripts/release $(PROGRAMS)
	scripts/install "$${PREFIX:-/usr/local}"

test: ## run every test, against real clients where this machine has them
	$(SETUP)
	scripts/test

lint: ## formatting, clippy with warnings as errors, licences
	$(SETUP)
	scripts/lint

bench: ## measure the release build next to upstream's; writes proof/bench/RESULT.md and its picture
	$(SETUP)
	scripts/bench

profile: ## count where the program spends its time, for the compiler here; release builds use it
	$(SETUP)
	scripts/profile

conformance: ## run Kubernetes' conformance suite against Kyanite and write the scoreboard
	$(SETUP)
	scripts/conformance

upstream: ## build upstream's own programs (kubelet, kubectl, etcd, helm, ...) into the cache, to compare with
	scripts/upstream

interop: ## swap upstream's programs in for ours, contract by contract, and write proof/interop/REPORT.md
	$(SETUP)
	scripts/interop

# The commands of the repository. Each target is one line; longer programs are in scripts/ or xtask/.

SHELL := bash
.DEFAULT_GOAL := help

# For make profile: the command (get or set), and the number of commands that are sent together.
WORKLOAD ?= get
PIPELINE ?= 100

# Seconds for each fuzz target: make fuzz SECONDS_EACH=600
SECONDS_EACH ?= 60

.PHONY: help install nightly run run-check fleet fleet-check regions regions-check stack stack-check lint-deploy test instructions lint fmt tidy codegen requirements doc deny fuzz soak miri leaks profile compare deps

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: ## mock origin, gateway and admin on this machine, and three curl lines to try
	@scripts/install-dependencies --run
	@scripts/run

run-check: ## the same on free ports: runs the three lines, checks the answers, stops
	@scripts/install-dependencies --run
	@scripts/run --check

fleet: ## three gateways as one cache over a redis-server, and four lines to try
	@scripts/install-dependencies
	@scripts/fleet

fleet-check: ## the same on free ports: runs the four lines, checks the answers, stops
	@scripts/install-dependencies
	@scripts/fleet --check

regions: ## two regions, 80 ms apart, and five lines to try
	@scripts/install-dependencies
	@scripts/regions

regions-check: ## the same on free ports: runs the five lines, checks the answers, stops
	@scripts/install-dependencies
	@scripts/regions --check

stack: ## what deploy/compose.yaml has, on this machine: two gateways behind HAProxy with TLS, and four curl lines to try
	@scripts/install-dependencies
	@scripts/stack

stack-check: ## the same on free ports: runs the four lines, stops and kills a gateway under load, counts what failed
	@scripts/install-dependencies
	@scripts/stack --check

lint-deploy: ## deploy/ by the tools of its formats: hadolint, actionlint, helm, kubeconform (needs network, and minutes at first)
	@scripts/lint-deploy

install: ## larder and larder-bench, from source to ~/.cargo/bin
	cargo install --locked --path crates/larder
	cargo install --locked --path crates/larder-bench

test: ## every test, on one build
	@scripts/test

instructions: ## what a hit and a GET cost, against the committed figures (scripts/instructions --write commits new ones)
	@scripts/install-dependencies --nightly
	@scripts/instructions

lint: ## everything about the source that needs no test: formatting, clippy, house rules, generated pages, documentation of the crates
	@scripts/lint

nightly: ## tests that take long and concern few changes: instructions, schedules, Miri, clients in other languages, undici's versions, leaks
	@scripts/install-dependencies --nightly
	@scripts/watches

fmt: ## format all code
	cargo fmt --all
	cargo fmt --manifest-path fuzz/Cargo.toml

tidy: ## house rules only (takes a second)
	cargo xtask tidy

codegen: ## write the generated pages of docs/reference
	cargo xtask codegen

requirements: ## join RFC citations of code and tests into docs/reference/rfc9111.md
	cargo xtask requirements

doc: ## the documentation of the crates, warnings as errors
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

deny: ## licences, advisories and sources of all dependencies (needs network)
	@cargo deny --version >/dev/null 2>&1 || cargo install --locked cargo-deny
	cargo deny check

fuzz: ## each fuzz target for SECONDS_EACH (60) seconds
	@scripts/fuzz $(SECONDS_EACH)

soak: ## the long tests of the binary: memory at its limit, ten thousand clients of kv, origin killed, reload under load
	@scripts/soak

miri: ## the engine's unsafe code under Miri, in a few minutes
	@scripts/miri

leaks: ## clients of kv under valgrind: nothing may be definitely lost
	@scripts/install-dependencies --nightly
	@scripts/leaks

profile: ## where kv spends its time (perf) and instructions (callgrind): make profile WORKLOAD=set PIPELINE=10
	@scripts/install-dependencies --nightly
	@scripts/profile $(WORKLOAD) $(PIPELINE)

# Rows, rounds and seconds: make compare WHAT="hit vary" ROUNDS=3 SECONDS_EACH=2 PEERS=larder,haproxy LARDER=path The
# Node.js package has a comparison of its own: make compare WHAT=undici CACHES="memory redis-tracking"
compare: SECONDS_EACH = $(if $(filter undici,$(WHAT)),30,3)
compare: ## Larder and its peers side by side; WHAT=hit and others, see compare/README.md
	@scripts/install-dependencies $(if $(filter undici,$(WHAT)),,--compare)
	@WHAT="$(WHAT)" ROUNDS="$(ROUNDS)" SECONDS_EACH="$(SECONDS_EACH)" PEERS="$(PEERS)" LARDER="$(LARDER)" scripts/compare

deps: ## install what is missing on this machine
	@scripts/install-dependencies

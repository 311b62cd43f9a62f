# The one list of commands. `make help` shows them.
#
# Each command installs and builds what it needs (tools/), into $PHPPROF_CACHE (/var/cache/phpprof, ~/.cache/phpprof if you are not root).
# KUBECONFIG_CONTEXT=name   demo and e2e use that context of the kubeconfig instead of a test cluster
# RUNTIME=musl              demo shows fpm, frankenphp, roadrunner, mod_php or musl
# CASE=upgrade              demo finds what an upgrade has made slower, instead of comparing shares
# STORE=s3                  demo stores in an S3 server instead of on a volume
# FAMILY=ipv6               the test cluster has only IPv6 addresses; with dual, addresses of both families
# IMAGE_REGISTRY=prefix     names the images with that prefix, and pushes them
# KUBERNETES=1.34           the version of Kubernetes that is started; 1.37 if none is given
# FULL=1                    the long form of e2e, real, truth and fuzz
# FUZZ_SECONDS=60           how long fuzz runs
# BENCH=smoke               the short form of bench, which holds counts to their limits
# SCALE=smoke               the short form of scale
# PEERS="NAME=PATH ..."     other profilers that bench runs in turn with ours: phpspy, pfp, and phpprof-before, the bench of an earlier commit
# RECORD=0                  bench, scale, slowdown and truth leave docs/measurements as it is
# SLOWDOWN_SECONDS=900      how long each row of slowdown runs at most
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

STAGE := tools/stage
TOOLS := tools/build
CACHE := $(shell unset KUBERNETES; . tools/cache.sh && echo "$$CACHE")
BIN := $(CACHE)/bin
# The folders of tools/kubernetes, the newest last.
KUBERNETES_VERSIONS := $(shell unset KUBERNETES; . tools/cache.sh && echo "$${KUBERNETES_VERSIONS[*]}")
KUBERNETES := $(or $(KUBERNETES),$(lastword $(KUBERNETES_VERSIONS)))
$(if $(filter $(KUBERNETES),$(KUBERNETES_VERSIONS)),,$(error KUBERNETES=$(KUBERNETES) is not a version that can be built here; try one of: $(KUBERNETES_VERSIONS)))
BESIDE_LOG := $(CACHE)/state/beside-e2e.log
ALONE_LOG := $(CACHE)/state/alone.log
# The second test cluster (e2e/cluster/names.sh).
SECOND := phpprof-e2e-2
# The images that a command needs: the product's, and those of tests and the demo.
IMAGES := phpprof operator kubectl-phpprof
TEST_IMAGES :=
# Outside the clone, so that a fresh one compiles its own crates only.
export CARGO_TARGET_DIR := $(or $(CARGO_TARGET_DIR),$(CACHE)/target)
export PATH := $(BIN)/kubernetes-$(KUBERNETES):$(BIN):$(PATH)
export KUBECONFIG_CONTEXT IMAGE_REGISTRY RUNTIME CASE FULL STORE FAMILY KUBERNETES BENCH SCALE PEERS RECORD

.PHONY: help
help: ## this list
	@sed -nE 's/^([a-z0-9-]+):[^#]*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22
	@sed -nE 's/^# ([A-Z_]+=[a-z0-9.]+) +(.*)/      \1\t\2/p' $(MAKEFILE_LIST) | expand -t 34

.PHONY: setup
setup: ## check what the machine must have, and install the rest
	@tools/givens
	@$(STAGE) "install packages" tools/packages
	@tools/own-target

.PHONY: lint
lint: style clippy ## formats, lints, licences, chart, scripts, the documents' English

.PHONY: clippy
clippy:
	@tools/givens lint
	@tools/own-target
	@$(STAGE) "clippy" cargo clippy --quiet --workspace --all-targets --locked -- -D warnings
	@$(STAGE) "clippy of tests outside the pure gate" cargo clippy --quiet --workspace --test '*' --locked -- -D warnings

# What takes seconds.
.PHONY: style
style:
	@tools/givens lint
	@tools/own-target
	@$(STAGE) "format" cargo fmt --all --check
	@$(TOOLS) actionlint cargo-deny vale
	@$(STAGE) "scripts, Go and workflows" tools/lint
	@$(STAGE) "English" vale --output=line *.md docs contract examples e2e/cluster
	@$(MAKE) chart
	@cargo fetch --quiet --locked # for every platform, or cargo-deny would not know them offline
	@$(STAGE) "licences" cargo-deny --offline --log-level error check bans licenses sources

# As any user.
.PHONY: chart
chart: ## lint the chart, and check that its README is what helm-docs writes
	@$(TOOLS) helm helm-docs
	@$(STAGE) "chart" helm lint --quiet --strict charts/phpprof
	@$(STAGE) "the chart's README" tools/chart-readme --check

# As any user.
.PHONY: docs
docs: ## build the site of the documents in target/docs, and check its links
	@$(TOOLS) mdbook
	@$(STAGE) "documents" tools/docs

# Any user's: no root, no package, no PHP, no cluster, no browser. Plain `cargo test` runs the same.
.PHONY: unit
unit: ## the pure gate: all tests that need Rust and a C compiler only
	@$(TOOLS) nextest
	@tools/own-target
	@$(STAGE) "pure gate" cargo nextest run --workspace --locked --cargo-quiet
	@$(STAGE) "examples of the documentation" cargo test --quiet --doc --workspace --locked

.PHONY: php
php: setup ## the sampler against real PHP on this machine; FULL=1 for all programs and versions
	@$(TOOLS) nextest
	@$(STAGE) "build runtimes" profiler-image/runtimes/build $(if $(filter 1,$(FULL)),all,quick)
	@$(STAGE) "real PHP" cargo nextest run --profile $(if $(filter 1,$(FULL)),php-full,php) --release --locked --cargo-quiet -p phpprof --test php

.PHONY: record-scenes
record-scenes: setup ## record the scenes of real PHP again that the pure gate replays, of each version; RUNTIME=php-8.4 of one
	@$(STAGE) "build runtimes" profiler-image/runtimes/build all
	@$(STAGE) "scenes" cargo test --quiet --release --locked -p phpprof --test scenes -- --exact record::record --ignored

.PHONY: real
real: setup ## PHP as people run it (php-fpm, Apache, FrankenPHP, RoadRunner, musl), with programs whose shares are known; FULL=1 for all
	@$(STAGE) "build runtimes" profiler-image/runtimes/build $(if $(filter 1,$(FULL)),all,quick)
	@$(STAGE) "runtimes" cargo test --quiet --release --locked -p phpprof --test runtimes

.PHONY: truth
truth: setup ## stacks, shares of time and CPU time, compared with programs that report theirs; FULL=1 for a million samples a row, and two wikis compared with Xdebug's traces; BALANCE=1 for shares of time only, VERDICT=1 for comparisons of two wikis with themselves only
	@$(STAGE) "truth" profiler-image/bench/truth.sh

.PHONY: bench
bench: setup ## what sampling costs, on constructed programs and real applications, PEERS="phpspy=/path pfp=/path" to compare; BENCH=smoke for a minute, as make test runs it
	@$(STAGE) "bench" profiler-image/bench/bench.sh

.PHONY: slowdown
slowdown: setup ## what profiling costs the target, compared with Excimer, Xdebug and tideways_xhprof: up to four hours
	@$(STAGE) "slowdown" profiler-image/bench/slowdown.sh

.PHONY: scale
scale: setup ## the operator with a real API server, 5,000 pods and 1,000 requests, seven minutes; SCALE=smoke for 200 pods, as make test runs it
	@$(TOOLS) kubernetes helm
	@$(STAGE) "scale" e2e/tools/scale

.PHONY: fuzz
fuzz: setup ## the readers of a target's memory on hostile bytes, for 60 seconds; FULL=1 for an hour
	@$(STAGE) "fuzz" profiler-image/fuzz/run

.PHONY: browser
browser: setup ## the plugin as krew installs it; formats and flame graph page in Chromium, speedscope, the Firefox Profiler's loader, go tool pprof, callgrind_annotate
	@$(TOOLS) kubernetes krew
	@$(STAGE) "build plugin" tools/programs kubectl-phpprof
	@$(STAGE) "krew manifest" kubectl-phpprof/krew/check "$(CARGO_TARGET_DIR)/debug/kubectl-phpprof"
	@$(STAGE) "install browser" tools/browser
	@$(STAGE) "page and formats" env PHPPROF_SPEEDSCOPE=$(CACHE)/speedscope PHPPROF_FIREFOX=$(CACHE)/profiler-cli PHPPROF_AXE=$(CACHE)/axe.min.js cargo test --quiet --locked --workspace --test readers

.PHONY: agents
agents: setup ## the plugin's server for agents, asked by the official client of the Model Context Protocol
	@$(STAGE) "build plugin" tools/programs kubectl-phpprof
	@$(STAGE) "agents" kubectl-phpprof/tests/agents/run "$(CARGO_TARGET_DIR)/debug/kubectl-phpprof"

.PHONY: connections
connections: setup ## the plugin connects wherever kubectl does: the same request by both, for each kind of kubeconfig
	@$(TOOLS) kubernetes
	@$(STAGE) "connections" cargo test --quiet --locked --workspace --test connections

# As any user. The tests are those of the pure gate, so that nothing is built again for them.
.PHONY: otlp
otlp: ## pushes by OTLP, over HTTP and gRPC with TLS, to a real OpenTelemetry Collector
	@$(TOOLS) nextest otelcol
	@tools/own-target
	@$(STAGE) "OTLP" env PHPPROF_OTELCOL=$(BIN)/otelcol cargo nextest run --workspace --locked --cargo-quiet --run-ignored only -E 'test(/::otel_collector::/)'

.PHONY: aarch64
aarch64: FULL := 1
aarch64: setup ## build the sampler for aarch64, and run its tests on memory images under qemu
	@$(STAGE) "aarch64" profiler-image/aarch64

# Both install what an arm64 program is built and tried with.
release release-check: FULL := 1

.PHONY: release
release: setup ## everything that a tag publishes, for amd64 and arm64, in target/release-VERSION
	@$(STAGE) "release" release/build

.PHONY: release-check
release-check: setup ## make a release twice, publish it to a local registry, pull it by digest, start it, and install it on a test cluster
	@$(STAGE) "check the release" release/check

.PHONY: images
images: ## build phpprof's images for this machine, as any user on x86_64 or arm64; load them into the test cluster if it is up
	@tools/givens programs
	@tools/own-target
	@$(STAGE) "images" images/build $(IMAGES)
	@$(if $(TEST_IMAGES),$(STAGE) "images of the tests" e2e/images/build $(TEST_IMAGES))
	@if [ -w /run/phpprof-e2e/containerd/containerd.sock ]; then $(STAGE) "load images" e2e/images/load $(IMAGES) $(TEST_IMAGES); fi

.PHONY: cluster-up
cluster-up: setup ## start a real one-node Kubernetes with DNS, storage and an S3 server, in its own network
	@e2e/cluster/up

.PHONY: cluster-down
cluster-down: ## remove the cluster, and the second one of e2e, and check that nothing is left
	@$(STAGE) "remove the cluster" e2e/cluster/down
	@$(STAGE) "remove the second cluster" env PHPPROF_CLUSTER=$(SECOND) e2e/cluster/down

# The cluster that demo and e2e run on: a test cluster, unless a context was named.
.PHONY: cluster
cluster: setup $(if $(KUBECONFIG_CONTEXT),,cluster-up) images
	@$(TOOLS) kubernetes helm

# Tests are named in the whole workspace, so that their dependencies are those of the pure gate (tools/programs).
# Each test is a process of its own (.config/nextest.toml), and holds the cluster shared or alone (e2e/src/hold.rs). Those that hold it alone
# have a second cluster, at the same time; where a context was named, they come last.
.PHONY: e2e
e2e: TEST_IMAGES := demo unknown-php runtimes $(if $(filter 1,$(FULL)),operator-older)
e2e: cluster plugin ## tests on real clusters: most on one, those that stop something on another
	@$(TOOLS) nextest prometheus $(if $(filter 1,$(FULL)),helm4)
	@$(STAGE) "build tests on the cluster" cargo test --quiet --locked --workspace --test chart --test cluster --test rights --no-run
	@$(if $(KUBECONFIG_CONTEXT),$(MAKE) together && $(MAKE) alone,$(MAKE) alone >"$(ALONE_LOG)" 2>&1 & alone=$$!; code=0; \
	  $(MAKE) together || code=$$?; wait $$alone || code=$$?; cat "$(ALONE_LOG)"; exit $$code)
	@$(if $(KUBECONFIG_CONTEXT),,$(STAGE) "rights that were used" cargo test --quiet --locked --workspace --test rights)

IGNORED := $(if $(filter 1,$(FULL)),--run-ignored all)
.PHONY: together
together:
	@$(STAGE) "prepare the cluster" tools/with-cluster "$(CARGO_TARGET_DIR)/debug/prepare"
	@$(STAGE) "tests on the cluster" tools/with-cluster cargo nextest run --profile cluster --locked --cargo-quiet --workspace --test chart --test cluster $(IGNORED)

.PHONY: alone
alone: TEST_IMAGES := demo unknown-php $(if $(filter 1,$(FULL)),runtimes operator-older)
alone: export PHPPROF_CLUSTER := $(if $(KUBECONFIG_CONTEXT),,$(SECOND))
alone:
	@$(if $(KUBECONFIG_CONTEXT),,e2e/cluster/up && $(STAGE) "load images" e2e/images/load $(IMAGES) $(TEST_IMAGES))
	@$(STAGE) "prepare the second cluster" tools/with-cluster "$(CARGO_TARGET_DIR)/debug/prepare"
	@$(STAGE) "tests that run alone" tools/with-cluster cargo nextest run --profile alone --locked --cargo-quiet --workspace --test cluster $(IGNORED)

.PHONY: api
api: plugin ## tests on a real control plane whose pods a toy plays: what needs no container
	@$(TOOLS) nextest kubernetes helm versitygw prometheus alertmanager argo-rollouts flagger $(if $(filter 1,$(FULL)),helm4)
	@$(STAGE) "build tests without containers" cargo test --quiet --locked --workspace --test toy --no-run
	@$(STAGE) "tests without containers" env PHPPROF_ARGO_ROLLOUTS=$(CACHE)/argo-rollouts PHPPROF_FLAGGER=$(CACHE)/flagger e2e/tools/toy bash -c '"$(CARGO_TARGET_DIR)/debug/prepare" && cargo nextest run --profile toy --locked --cargo-quiet --workspace --test toy $(if $(filter 1,$(FULL)),--run-ignored all)'

.PHONY: plugin
plugin: setup ## install kubectl phpprof next to the test cluster's programs
	@$(STAGE) "build plugin" tools/programs kubectl-phpprof
	@cmp -s "$(CARGO_TARGET_DIR)/debug/kubectl-phpprof" "$(BIN)/kubectl-phpprof" || install -D "$(CARGO_TARGET_DIR)/debug/kubectl-phpprof" "$(BIN)/kubectl-phpprof"

.PHONY: demo
demo: IMAGES := phpprof operator
demo: TEST_IMAGES := demo $(addprefix demo-,$(filter-out fpm,$(RUNTIME)))
demo: STORE := $(or $(STORE),volume)
demo: cluster plugin ## from a PHP application on a cluster to a profile on the screen
	@$(STAGE) "demo" tools/with-cluster demo/run.sh

.PHONY: generate
generate: ## write all generated files: CRD YAML and chart from the API types, the references of plugin and sampler, tables of reasons and exit codes from contract/reasons.yaml, layout rows from php-abi.json, the chart's README
	@$(TOOLS) helm-docs
	@tools/chart-readme
	@cargo run --quiet -p phpprof-documents --example reasons
	@cargo run --quiet -p phpprof-crds --bin crdgen
	@cargo run --quiet -p kubectl-phpprof -- __reference > docs/reference/kubectl-phpprof.md
	@cargo build --quiet -p phpprof
	@cargo run --quiet -p phpprof-documents --example reference "$(CARGO_TARGET_DIR)/debug/phpprof" > docs/reference/phpprof.md
	@cargo run --quiet -p phpprof-zend --example layouts

# What the later stages need is built while the first ones run, on the other core. The benchmark's counts and truth come last: they need
# a quiet machine. What cargo keeps for the next compilation of a crate takes a quarter of the CPU time of this one.
.PHONY: test
test: export CARGO_INCREMENTAL := 0
test: export RECORD := 0
test: setup ## all tests, in their short form
	@tools/ahead
	@$(MAKE) style
	@$(MAKE) unit
	@tools/ahead --wanted
	@$(MAKE) beside-e2e >"$(BESIDE_LOG)" 2>&1 & beside=$$!; code=0; \
	  $(MAKE) e2e || code=$$?; wait $$beside || code=$$?; cat "$(BESIDE_LOG)"; exit $$code
	@$(MAKE) real
	@$(MAKE) bench BENCH=smoke
	@$(MAKE) truth

# The cluster's tests are built while it starts, and wait most of their time: the fuzzing fits in there, builds for what follows, clippy,
# which is late because cargo would let the cluster's tests wait for it, as for all that is built without --release, the browser and real
# PHP. These two come last, and have as much CPU time as the cluster's tests: theirs have time limits.
.PHONY: beside-e2e
beside-e2e:
	@cargo test --quiet --locked --workspace --test chart --test cluster --test rights --test toy --no-run
	@$(MAKE) api
	@tools/beside $(MAKE) fuzz $(if $(filter 1,$(FULL)),,FUZZ_SECONDS=$(or $(FUZZ_SECONDS),10))
	@tools/beside cargo test --quiet --release --locked -p phpprof --test runtimes --test php --no-run
	@tools/beside cargo build --quiet --release --locked -p phpprof-bench
	@tools/beside cargo test --quiet --locked --workspace --test readers --no-run
	@tools/beside $(MAKE) clippy
	@tools/beside $(MAKE) connections
	@tools/beside $(MAKE) otlp
	@tools/beside $(MAKE) agents
	@$(MAKE) browser
	@$(MAKE) scale SCALE=smoke
	@$(MAKE) php

# Its targets of make are tests themselves, or run here.
.PHONY: commands
commands: plugin ## the documents' commands for a clone: what they build and install, and both demos
	@$(TOOLS) kubernetes
	@$(STAGE) "commands for a clone" cargo run --quiet --locked -p phpprof-documents --example clone
	@$(MAKE) demo
	@$(MAKE) demo CASE=upgrade

.PHONY: test-full
test-full: ## all tests, in their long form
	@$(MAKE) test FULL=1
	@$(MAKE) commands
	@$(MAKE) aarch64
	@$(MAKE) release-check
	@$(foreach version,$(filter-out $(KUBERNETES),$(KUBERNETES_VERSIONS)),$(MAKE) api $(if $(KUBECONFIG_CONTEXT),,e2e) FULL=1 KUBERNETES=$(version);)

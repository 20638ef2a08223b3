# Kagami. `make run`, `make demo` and `make test` need Go alone; the tests use a
# JDK 17, Maven and kcat where they are there and say what they skipped.
GO       ?= go
FUZZTIME ?= 10s
SEED     ?=
SEEDS    ?=
SOURCE   ?= kagami
NODES    ?= 1
TESTSUM  := gotest.tools/gotestsum@v1.13.0
LINT     := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
BIN      := bin

.PHONY: all build run demo test check lint format vet generate fuzz bench sim e2e clean

all: build

build:
	$(GO) build -o $(BIN)/ ./cmd/...

## run: one node with no configuration: Kafka on :9094, admin on :9644, data in ./data
run: build
	$(BIN)/kagami server

## demo: two nodes; mirror, lag, failover, failback, comparison (SOURCE=kafka: real Apache Kafka as the source;
##       NODES=3: the destination is a cluster of three, one of which is killed on the way)
demo: build
ifeq ($(SOURCE),kafka)
	$(GO) run ./test/kafka/with $(BIN)/kagami demo --nodes=$(NODES) --source-bootstrap={}
else
	$(BIN)/kagami demo --nodes=$(NODES)
endif

## test: all tests. Real-Kafka tests are skipped with a count where Java or Maven are missing. Up to three that fail
##       are run once more, each alone: real brokers, kills and a busy machine miss a time limit now and then. Both
##       results are printed, and one that fails twice fails the whole
test:
	$(GO) run $(TESTSUM) --format standard-quiet --rerun-fails=1 --rerun-fails-max-failures=3 --packages=./... -- -timeout 40m

## check: format, vet, lint, and all tests with the race detector, in any order
check: format vet lint
	$(GO) test -race -shuffle=on -timeout 60m ./...

format:
	@out=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$out" ]; then echo "not formatted:"; echo "$$out"; exit 1; fi

vet:
	$(GO) vet ./...

lint:
	$(GO) run $(LINT) run

## generate: wire codecs, protobuf code, docs, diagrams
generate:
	$(GO) generate ./...

fuzz:
	@set -e; for f in $$(grep -rlE '^func Fuzz' --include='*_test.go' . | xargs -n1 dirname | sort -u); do \
	  for t in $$(grep -hoE '^func Fuzz[A-Za-z0-9_]*' $$f/*_test.go | sed 's/func //'); do \
	    echo "== $$f $$t"; $(GO) test -run '^$$' -fuzz "^$$t$$" -fuzztime $(FUZZTIME) $$f; done; done

bench:
	$(GO) test -run '^$$' -bench . -benchmem ./fetch/... ./persistence/... ./cluster/... ./broker/...
	KAGAMI_BENCH=1 $(GO) test -count=1 -timeout 120m -v ./test/bench/...

## sim: the simulation: one seed (SEED=7), the first N (SEEDS=20000), N from one on (both), or the first 1,000. A failing seed prints how to repeat it
##      and the shortest list of commands that was found: a script for test/sim/testdata
sim:
	KAGAMI_SIM_SEED=$(SEED) KAGAMI_SIM_SEEDS=$(SEEDS) $(GO) test -count=1 ./test/sim/...

e2e:
	$(GO) test -count=1 -timeout 40m -v ./test/e2e/...

clean:
	rm -rf $(BIN)

.DEFAULT_GOAL := help

include deploy/pod.mk

.PHONY: help
help: ## list the verbs
	@awk -F ':.*## ' '/^[a-zA-Z0-9_-]+:.*## / { printf "%-20s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# ARGS are flags of `tenure demo`.
.PHONY: demo
demo: ## three candidates without a cluster, and what happens to their leaders
	cargo run --features demo-tui -- demo $(ARGS)

.PHONY: demo-picture
demo-picture: ## record docs/demo.svg from a real run
	cargo run --features demo-tui -- demo --duration 28s --seed 1 --plain --picture docs/demo.svg

.PHONY: cluster-binaries
cluster-binaries: ## build etcd, kube-apiserver and kubectl for the tests on a real API server (once, minutes)
	hack/build-kubernetes.sh kube-apiserver etcd kubectl

.PHONY: node-binaries
node-binaries: cluster-binaries ## build the rest of a control plane and a kubelet, for tests on real pods
	hack/build-kubernetes.sh kubelet kube-controller-manager kube-scheduler

.PHONY: peer
peer: ## build the client-go elector that the tests let compete with tenure
	hack/build-peer.sh

.PHONY: release-musl
release-musl: ## the static release binary for this machine, and its size
	deploy/static-binary.sh $(ARCH) target/static
	@stat -c '%n: %s bytes' target/static/tenure
	@gzip -9c target/static/tenure | wc -c | sed 's/$$/ bytes gzipped/'

.PHONY: model
model: ## the model checker: the bigger variants exhausted, then random walks (WALK seconds each)
	MODEL=big cargo test -q --features mutants --test model -- every_state --nocapture
	MODEL=walked WALK=$(or $(WALK),60) cargo test -q --features mutants --test model -- every_state --nocapture

.PHONY: mutants
mutants: ## which layers of the tests notice each mutant of the core
	hack/mutants.sh

# What the image and each pod carry; the aims are those of docs/benchmarks.md.
MAX_BINARY = 4400000
MAX_GZIPPED = 2200000

.PHONY: size
size: release-musl ## the release binary, refused where it has grown too big
	@test "$$(stat -c %s target/static/tenure)" -le $(MAX_BINARY) || { echo "the binary is bigger than $(MAX_BINARY) bytes" >&2; exit 1; }
	@test "$$(gzip -9c target/static/tenure | wc -c)" -le $(MAX_GZIPPED) || { echo "gzipped it is bigger than $(MAX_GZIPPED) bytes" >&2; exit 1; }

.PHONY: bench
bench: cluster-binaries peer release-musl ## tenure and client-go measured side by side: BENCH=quick (6 minutes) or full (23), ONLY=parts
	deploy/debian.sh wrk curl util-linux
	BENCH=$(or $(BENCH),quick) ONLY=$(ONLY) cargo bench --bench bench

.PHONY: marks
marks: ## each rule of the protocol's appendix: its test, and whether the test notices its absence
	cargo test -q --features mutants --test marks -- table --nocapture

# Everything a test needs: the real control plane and the client-go peer are built once.
.PHONY: test
test: cluster-binaries peer size ## all tests but those with real pods; sets up what they need
	cargo test --features mutants,demo-tui $(ARGS)

ROUNDS ?= 100
LANES ?= 1
.PHONY: chaos
chaos: cluster-binaries peer ## ROUNDS of harm in each of LANES, tenure and client-go on one Lease each; prints hand-overs and gaps
	CHAOS_ROUNDS=$(ROUNDS) CHAOS_LANES=$(LANES) cargo test --test chaos -- --nocapture

.PHONY: deletions
deletions: cluster-binaries ## the Lease is deleted RUNS=500 times under its leader, in SITES=4 at a time; prints times
	DELETIONS=$(or $(RUNS),500) DELETION_SITES=$(or $(SITES),4) \
		cargo test --test real scenario_e2_the_lease_is_deleted -- --nocapture

.PHONY: stops
stops: cluster-binaries ## SIGTERM while a renewal is on its way, RUNS=1000 times, in SITES=4 at a time; prints the time
	STOPS=$(or $(RUNS),1000) STOP_SITES=$(or $(SITES),4) \
		cargo test --test faults scenario_s5 -- --nocapture

MINUTES ?= 60
CLIENTS ?= 1000
.PHONY: soak
soak: ## MINUTES of leading, losing, reconnecting with CLIENTS of the event stream; prints what it took
	SOAK_SECONDS=$$(($(MINUTES) * 60)) SOAK_CLIENTS=$(CLIENTS) cargo test --test soak -- --nocapture

# The sanitizers need what only a nightly compiler has by default.
FUZZ_SECONDS ?= 60
.PHONY: fuzz
fuzz: ## each fuzz target for FUZZ_SECONDS (cargo install cargo-fuzz)
	for target in lease_json core_events local_api; do \
		mkdir -p fuzz/corpus/$$target; \
		RUSTC_BOOTSTRAP=1 cargo fuzz run $$target fuzz/corpus/$$target fuzz/seeds/$$target -- \
			-max_total_time=$(FUZZ_SECONDS) || exit 1; \
	done

.PHONY: lint
lint: $(CARGO_DENY) $(ACTIONLINT) ## formatting, clippy, licences, workflows, shell scripts
	cargo fmt --check
	cargo clippy --all-targets --features mutants,demo-tui -- -D warnings
	cargo clippy --features kubeconfig -- -D warnings
	$(CARGO_DENY) check bans licenses sources
	$(ACTIONLINT)
	shellcheck hack/*.sh deploy/*.sh .ci/run

.PHONY: sim
sim: ## simulate SEEDS=10000 clusters (FIRST=n: from there on), or replay one with its timeline: SEED=n
	SEEDS=$(or $(SEEDS),10000) cargo test -q --test simulation -- --nocapture

# The targets are listed by "make" or "make help". CONTRIBUTING.md says what each needs.

GO ?= go
PROGRAMS := ./cmd/forerunner ./cmd/forerunner-scheduler ./cmd/forerunner-worker
TEST_FLAGS ?=
# Such as "--runs 10 --only find,tar"; build/bench/bench vfs --help lists them, and so for the others.
BENCH_FLAGS ?=

# The programs that the tests use beside Go, each with the Debian package that has it.
TEST_NEEDS := bazel:bazel-bootstrap curl:curl g++:g++ git:git mkfs.btrfs:btrfs-progs mkfs.xfs:xfsprogs npm:npm \
	openssl:openssl redis-sentinel:redis-sentinel redis-server:redis-server systemd-analyze:systemd

# The race detector sleeps for a second at each exit of a program; the tests start many.
export GORACE := atexit_sleep_ms=0

.DEFAULT_GOAL := help
.PHONY: release test-install page-needs screenshots test-pages help build demo test test-needs compile unformatted test-cgroup2 test-cluster test-reuse test-rot test-sizes test-flood soak fuzz lint bench-vfs bench-prefetch bench-scheduler bench-worker bench-local bench-sizes bench-quotas bench-pages bench-scrub vulncheck generate clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Static: the programs need no library of the machine that they run on. VERSION names a build that is not of a checkout.
VERSION ?=
build: ## build the three programs into bin/
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-X github.com/forerunner-build/forerunner/farm/flags.release=$(VERSION)" -o bin/ $(PROGRAMS)

# A module of its own: what packages the programs is no dependency of theirs. VERSION is by default the first in CHANGELOG.md.
release: ## make packages, archives, an image and checksums of all below build/release (minutes)
	$(GO) test -C release -count 1 .
	$(GO) run -C release . -source .. -out ../build/release -version "$(VERSION)"

# Two minutes, most of which the programs are built; "make release" does it, too.
test-install: ## install, upgrade, remove and purge the Debian package on a machine with systemd, in namespaces (needs root)
	$(GO) test -C release -count 1 -v -timeout 20m -run TestInstalled .

demo: build ## run a real job through a farm on 127.0.0.1 (needs root)
	bin/forerunner demo

# Packages that are tested at a time: those that start whole farms wait more than they compute. Those that take
# longest begin first, or the last one would run alone; those that wait are between those that compute. While tests wait
# staticcheck has the CPUs. Where actions find the worker of their size is measured, so nothing else runs then.
# What has no goroutines is tested without -race, which finds nothing there and takes five times as long; a test sees that
# it has none. Those that move much data between programs are tested without it, too: it looks at each byte, but not into
# the programs.
# FORERUNNER_TEST_PROGRAMS says that test/programs need not build the programs.
TEST_PACKAGES ?= 4
TEST_OF_PROGRAMS := ./test/flood ./test/soak ./test/rot ./docs
TEST_FIRST := ./test/bazel ./worker ./vfs ./farm ./intake ./vfs/link ./test/crash ./sandbox ./bench/prefetch ./prefetch \
	./test/cluster ./records ./runner ./cas/fetch ./test/operator ./history ./cas/disk ./test/outage \
	./cas/client ./bench/local ./test/command ./worker/outputs ./test/reuse ./web ./history/relay ./cas/server
TEST_WITHOUT_RACE := ./scheduler/core $(addprefix ./scheduler/core,/alike /drain /fair /fifo /levels /listing /orphan /preemption /quota /roster \
	/spill /sweep /timer /trust /tuning /view) $(addprefix ./bench/,quotas report sizes sizes/command sizes/peer sizes/streams) \
	$(addprefix ./cas/,digest disk/folder disk/tamper holders instance span tree wire) $(addprefix ./prefetch/,mention score) \
	$(addprefix ./proto/,names pattern plural) $(addprefix ./web/,charts series text timeline) \
	./bounded/least ./logline ./mountinfo ./paths ./records/kind ./secrets ./settings ./vfs/erofs
test: export FORERUNNER_TEST_PROGRAMS := $(CURDIR)/build/test
test: test-needs compile unformatted ## check and test everything; installs what is missing if it is root
	@found=$$(mktemp); nice -n 19 $(STATICCHECK) >"$$found" 2>&1 & checked=$$!; \
	over() { kill $$checked; rm -f "$$found"; } 2>/dev/null; \
	for signal in INT TERM; do trap "over; trap - $$signal; kill -$$signal \$$\$$" $$signal; done; \
	tested=1; packages=$$($(GO) list $(TEST_FIRST) ./...) && tested=0 && { \
		packages=$$(echo "$$packages" | grep -v $(patsubst .%,-e '%$$',./test/sizes $(TEST_OF_PROGRAMS) $(TEST_WITHOUT_RACE))); \
		$(GO) test -vet=off -toolexec 'env $(LARGE_HEAP)' -p $(TEST_PACKAGES) -timeout 30m $(TEST_FLAGS) \
			$(TEST_OF_PROGRAMS) $(TEST_WITHOUT_RACE) || tested=1; \
		$(GO) test -race -vet=off -toolexec 'env $(LARGE_HEAP)' -p $(TEST_PACKAGES) -timeout 30m $(TEST_FLAGS) $$packages || tested=1; \
	}; \
	wait $$checked || { tested=1; echo "staticcheck:"; cat "$$found"; }; rm -f "$$found"; exit $$tested
	$(GO) test -race -vet=off -timeout 30m $(TEST_FLAGS) ./test/sizes

test-needs:
	@set -e; missing=; \
	for need in $(TEST_NEEDS); do \
		command -v $${need%%:*} >/dev/null || missing="$$missing $${need##*:}"; \
	done; \
	test -d /usr/src/googletest || missing="$$missing googletest"; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "installing what the tests need:$$missing"; \
		apt-get update -q; \
		DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $$missing; \
	else \
		echo "missing, some tests will be skipped:$$missing"; \
		echo "to run them: apt-get install$$missing"; \
	fi
	@.ci/promtool

# Each action whose run was spared is compiled again and compared; 60 of them are part of "make test".
test-reuse: ## compare 300 compile actions that reuse results with runs, on one worker and on three (needs root, gcc)
	FORERUNNER_TEST_REUSE_ACTIONS=300 $(GO) test -count 1 -v -run TestReuse ./worker ./test/reuse

test-sizes: ## have actions with several threads, too, find the worker of their size (needs root, two idle CPUs)
	FORERUNNER_TEST_SIZES=all $(GO) test -count 1 -v ./test/sizes

# Some minutes; not part of "make test".
test-cluster: ## run 2,000 actions through the faults of a cluster in network namespaces (needs root)
	$(GO) test -tags cluster -count 1 -v -timeout 40m -run "TestCluster|TestBazelOverTLS" ./test/cluster ./test/bazel

# A minute; not part of "make test", which would need a browser.
test-pages: page-needs ## open the pages in a real browser, during a real build, and have one in an action (needs root; installs chromium, npm)
	$(GO) test -tags pages -p 1 -count 1 -v -timeout 30m -run 'TestPages$$|TestNestedBrowser' ./test/pages ./test/nested

screenshots: page-needs ## make images of the pages in build/screenshots (needs root; installs chromium, npm)
	FORERUNNER_TEST_IMAGES=$(CURDIR)/build/screenshots \
		$(GO) test -tags pages -count 1 -v -timeout 30m ./test/pages

page-needs: test-needs
	@command -v chromium >/dev/null || { apt-get update -q && \
		DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends chromium; }
	cd web/browser && npm ci --ignore-scripts --no-audit --no-fund --prefer-offline

# Some minutes; a small one is part of "make test".
test-flood: ## flood a scheduler that has 200 MB while actions run, and print how long they take (needs root, cgroup v1)
	FORERUNNER_TEST_FLOOD=all $(GO) test -count 1 -v -timeout 30m ./test/flood

# A fault of the farm is found again by its seed. A soak of a few seconds is part of "make test".
SOAK_TIME ?= 1h
SOAK_SEED ?= 1
soak: ## have a farm work for SOAK_TIME (1h) through faults of SOAK_SEED (1), and look for leaks (needs root)
	FORERUNNER_TEST_SOAK=$(SOAK_TIME) FORERUNNER_TEST_SOAK_SEED=$(SOAK_SEED) \
		$(GO) test -count 1 -v -timeout 0 -run TestSoak ./test/soak

# A small one is part of "make test".
ROT_ACTIONS ?= 2000
ROT_SEED ?= 1
test-rot: ## have a farm build ROT_ACTIONS (2000) while bytes of ROT_SEED (1) flip on its disks (needs root)
	FORERUNNER_TEST_ROT=$(ROT_ACTIONS) FORERUNNER_TEST_ROT_SEED=$(ROT_SEED) \
		$(GO) test -count 1 -v -timeout 2h -run TestRot ./test/rot

# What is found is written below testdata/fuzz; from there "make test" tries it each time. Inputs are made small
# for a second only: by default all of the time goes by with the first one whose coverage varies.
FUZZ_TIME ?= 30s
fuzz: ## fuzz all that reads what others write, FUZZ_TIME (30s) for each function; failures are listed at the end
	@failed=$$(mktemp) && grep -rH --include=*_test.go '^func Fuzz' . | sed 's,/[^/]*:func , ,; s,(.*,,' | sort | \
	while read -r package name; do \
		echo "$$package $$name"; \
		$(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZ_TIME) -fuzzminimizetime 1s "$$package" </dev/null || echo "$$package $$name" >> "$$failed"; \
	done; \
	list=$$(cat "$$failed"); rm -f "$$failed"; \
	if [ -n "$$list" ]; then printf 'fuzzing failed:\n%s\n' "$$list"; exit 1; fi

# Two minutes; not part of "make test", whose tests need what this installs for nothing else.
test-cgroup2: ## test cgroup v2 with all controllers in a virtual machine (installs qemu if it is root)
	@for program in qemu-system-x86_64 cpio; do command -v $$program >/dev/null || missing=1; done; \
	if [ -n "$$missing" ]; then \
		apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends qemu-system-x86 cpio; \
	fi
	CGO_ENABLED=0 $(GO) test -c -o build/cgroup2/cgroup.test ./cgroup
	CGO_ENABLED=0 $(GO) test -c -o build/cgroup2/runner.test ./runner
	CGO_ENABLED=0 $(GO) test -c -o build/cgroup2/sandbox.test ./sandbox
	cgroup/testdata/vm.sh build/cgroup2 \
		"build/cgroup2/cgroup.test -test.v -test.run '.*/v2|Delegated' -test.skip LeavesNothing" \
		"build/cgroup2/runner.test -test.v -test.run '(OutOfMemory$$|TheirSlot|Nobody|GroupIsUsed|ForkBomb)/(v2|sandbox)'" \
		"build/cgroup2/sandbox.test -test.v -test.run '(Attacks|OwnCgroups)/(v2|sandbox)|Abuse'"

lint: compile unformatted ## vet, gofumpt and staticcheck
	$(STATICCHECK)

# Compilers, linkers and analysers make much garbage, and most end before it is worth collecting.
LARGE_HEAP := GOGC=off GOMEMLIMIT=1GiB

# What is tested is analysed: with -race, so that packages are compiled once for both. "go tool" leaves GOFLAGS out, and
# would compile what tools import once more.
STATICCHECK = env GOGC=off GOMEMLIMIT=2GiB GOFLAGS="$$($(GO) env GOFLAGS) -race" build/test/staticcheck ./...

# What is built without -race is one build, so that nothing is compiled twice. It has the CPUs while vet waits for one large
# package, or for modules. "make lint test" compiles once, for both. Tests are compiled before staticcheck and "go test"
# begin: both need them, and would compile them at the same time, each for itself.
BESIDE := $(if $(filter test,$(MAKECMDGOALS)),$(PROGRAMS))
compile:
	$(LARGE_HEAP) $(GO) build -ldflags=-w -o build/test/ honnef.co/go/tools/cmd/staticcheck mvdan.cc/gofumpt $(BESIDE) & built=$$!; \
	$(LARGE_HEAP) $(GO) list -race -test -export ./... >/dev/null && $(LARGE_HEAP) $(GO) vet -race ./... && wait $$built

unformatted: compile
	@unformatted="$$(build/test/gofumpt -l .)" || exit 1; \
	if [ -n "$$unformatted" ]; then \
		echo "not formatted, run \"go tool gofumpt -w .\":"; echo "$$unformatted"; exit 1; \
	fi

# Boost makes the row gxx what it is meant to be; without it, or g++, the row says so.
bench-vfs: ## measure input roots against plain folders (needs root; many minutes, 5 GiB of disk)
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && ! test -d /usr/include/boost; then \
		apt-get install -q -y --no-install-recommends g++ libboost-dev || echo "going on without Boost"; \
	fi
	$(GO) build -o build/bench/bench ./cmd/bench
	build/bench/bench vfs $(BENCH_FLAGS)

bench-prefetch: ## measure actions whose inputs are far away (needs root; many minutes, several GiB of disk)
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && ! test -d /usr/include/boost; then \
		apt-get install -q -y --no-install-recommends g++ libboost-dev || echo "going on without Boost"; \
	fi
	CGO_ENABLED=0 $(GO) build -o build/bench/ ./cmd/bench $(PROGRAMS)
	build/bench/bench prefetch $(BENCH_FLAGS)

bench-scheduler: ## measure the scheduler's decisions (some minutes, 3 GiB of memory)
	$(GO) build -o build/bench/bench ./cmd/bench
	build/bench/bench scheduler $(BENCH_FLAGS)

bench-worker: ## measure what a worker adds to its commands (needs root and a C compiler; half an hour, 8 GiB of disk)
	$(GO) build -o build/bench/bench ./cmd/bench
	build/bench/bench worker $(BENCH_FLAGS)

bench-local: ## measure a farm on this machine against Bazel without one (needs root, bazel and gcc; half an hour, 2 GiB of disk)
	CGO_ENABLED=0 $(GO) build -o build/bench/ ./cmd/bench $(PROGRAMS)
	build/bench/bench local $(BENCH_FLAGS)

bench-sizes: ## simulate the choice of size classes (some minutes)
	$(GO) build -o build/bench/bench ./cmd/bench
	build/bench/bench sizes $(BENCH_FLAGS)

bench-quotas: ## simulate instances that share a farm by quotas (some minutes)
	$(GO) build -o build/bench/bench ./cmd/bench
	build/bench/bench quotas $(BENCH_FLAGS)

bench-pages: ## measure the scheduler's pages and records (some minutes, 2 GiB of memory, 3 GiB of disk)
	$(GO) build -o build/bench/bench ./cmd/bench
	build/bench/bench pages $(BENCH_FLAGS)

bench-scrub: ## measure what it costs to verify a store, and to open one (minutes, 5 GiB of disk)
	$(GO) build -o build/bench/bench ./cmd/bench
	build/bench/bench scrub $(BENCH_FLAGS)

VULN_DB ?= https://vuln.go.dev
vulncheck: ## ask VULN_DB (https://vuln.go.dev) for known vulnerabilities of dependencies
	$(GO) run golang.org/x/vuln/cmd/govulncheck@v1.1.4 -db $(VULN_DB) ./...

generate: ## make the code of the schemas below proto/ anew, and schemas, examples and reference pages of settings
	$(GO) run ./proto/generate
	FORERUNNER_GENERATE=1 $(GO) test -count 1 -run 'TestReference$$' ./cmd/... ./farm ./worker/...

clean: ## remove what the other targets made
	rm -rf bin build

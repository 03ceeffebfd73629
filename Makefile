# The commands a person types. What they do is in scripts/, CMakePresets.json and .ci/run.
.DEFAULT_GOAL := help
.PHONY: help run test simulate simulate-story bench bench-shared bench-control bench-gateway prove-gateway soak-gateway bench-grpc bench-peers docs package tidy format check clean

JOBS ?= $(shell nproc)
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(JOBS)
# Most tests wait most of their time.
export CTEST_PARALLEL_LEVEL ?= $(shell echo $$((2 * $(JOBS))))

# $(call build,<preset>,<packages.txt sections>[,<cmake --build arguments>])
build = @scripts/setup $2 && cmake --preset $1 >/dev/null && cmake --build --preset $1 $3

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# In a terminal the shop runs until Ctrl-C, with its dashboard. Elsewhere, with DEMO_SECONDS=n or with ARGS, the demo runs
# once and ends with a table.
run: ## Build the program and run its demo, with a dashboard; DEMO_SECONDS=24 or ARGS="--json": once, and then a table
	$(call build,release,build,--target bulkhead_app $(if $(findstring --gateway,$(ARGS)),bulkhead_nginx))
	@if [ -t 0 ] && [ -t 1 ] && [ -z "$(DEMO_SECONDS)$(ARGS)" ]; then build/release/app/bulkhead demo --serve; \
	else build/release/app/bulkhead demo $(if $(DEMO_SECONDS),--seconds $(DEMO_SECONDS)) $(ARGS); fi
	@case "$(ARGS)" in *--json*|*--gateway*) ;; *) echo 'For a service in any language, through nginx: make run ARGS=--gateway' ;; esac

test: ## Build everything with assertions and run all tests
	$(call build,dev,build test web docs)
	@scripts/run_tests dev

simulate: ## Adaptive limiters side by side on virtual time; writes docs/limiter.md's tables and pictures (20 min)
	$(call build,release,build,--target bulkhead_limiter_sim)
	@build/release/app/sim/bulkhead_limiter_sim --docs docs $(ARGS)

simulate-story: ## Compare what `bulkhead simulate` predicts for the shop with a run of the demo; needs an idle machine
	$(call build,release,build,--target bulkhead_app)
	@python3 -B tests/app/simulate_test.py build/release/app/bulkhead Live

bench: ## Measure against the rivals, gate and pool; ARGS is for the gate, --quick for both
	$(call build,bench,build bench)
	@build/bench/bench/bulkhead_bench $(ARGS)
	@build/bench/bench/bulkhead_pool_bench $(if $(findstring --quick,$(ARGS)),--quick)

bench-shared: ## Limits that processes share, scope: host and scope: fleet (needs redis-server); ARGS=--quick
	$(call build,bench,build bench,--target bulkhead_host_bench --target bulkhead_fleet_bench)
	@build/bench/bench/bulkhead_host_bench $(ARGS)
	@build/bench/bench/bulkhead_fleet_bench $(ARGS)
	@build/bench/bench/bulkhead_fleet_bench --store $(ARGS)

bench-control: ## What the control plane and the dashboard cost: memory, time to the first page, processor; ARGS=--quick
	$(call build,release,build,--target bulkhead_app)
	@bench/control/figures.py build/release/app/bulkhead $(ARGS)
	$(call build,bench,build bench,--target bulkhead_tenants_bench)
	@build/bench/bench/bulkhead_tenants_bench $(ARGS)

bench-gateway: ## nginx with bulkheads beside plain nginx, limit_conn and HAProxy; ARGS="--rounds 4"
	$(call build,release,build bench,--target bulkhead_nginx)
	@bench/gateway/gateway_bench.py --module build/release/adapters/nginx/ngx_http_bulkhead_module.so $(ARGS)

prove-gateway: ## nginx module: 100 000 aborted requests leave no permit, 10 000 event streams are counted exactly, memory of a waiting request
	$(call build,release,build,--target bulkhead_nginx)
	@for proof in aborts streams memory; do TEST_NGINX_MODULE=$(CURDIR)/build/release/adapters/nginx/ngx_http_bulkhead_module.so tests/nginx/proofs.py $$proof || exit 1; done

soak-gateway: ## nginx module: 10 minutes of requests with a reload every 5 s; ARGS="--seconds 60"
	$(call build,release,build,--target bulkhead_nginx)
	@TEST_NGINX_MODULE=$(CURDIR)/build/release/adapters/nginx/ngx_http_bulkhead_module.so tests/nginx/proofs.py soak $(ARGS)

bench-grpc: ## What a guard costs a gRPC server, and what a storm of rejections costs its other methods; ARGS=--quick
	$(call build,bench,build bench,--target bulkhead_grpc_bench)
	@build/bench/bench/bulkhead_grpc_bench $(ARGS)

bench-peers: ## The same workloads in Java, Go, Rust and JavaScript (installs their tools)
	$(call build,bench,build bench)
	@bench/peers/run $(ARGS)

docs: ## Build the documentation site, with search and API reference, and check its links
	@scripts/setup docs
	@scripts/docs_site

package: ## Build the Debian packages libbulkhead-dev, bulkhead and libnginx-mod-http-bulkhead into build/package
	$(call build,package,build package)
	@cd build/package && cpack --config CPackConfig.cmake -B . && rm -rf _CPack_Packages && ls *.deb
	@grep -q 'CPACK_COMPONENTS_ALL.*bulkhead-nginx' build/package/CPackConfig.cmake || \
	  { echo 'There is no package of the nginx module; cmake --preset package says why' >&2; exit 1; }

tidy: ## Run clang-tidy over the library
	@scripts/setup build test bench ci
	@scripts/tidy

format: ## Format the sources in place
	@scripts/setup ci
	@git ls-files '*.h' '*.cc' | xargs -r clang-format-19 -i

check: ## Run everything CI runs: the tests, sanitizers, Clang, checks
	@.ci/run

clean: ## Remove build/
	@rm -rf build

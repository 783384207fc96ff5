# Every target is a command of dev.py, which makes the environment it needs. Without make: python3 dev.py test
# Another interpreter: make test PYTHON=python3.12      More arguments: make test ARGS="-k cancel"
N ?= 200
MINUTES ?= 60
SECONDS ?= 60
ARGS ?=
WORK ?=
ENGINE ?=
DEV := $(if $(PYTHON),$(PYTHON) dev.py --python $(PYTHON),python3 dev.py)

.PHONY: bench bench-quick bench-check help demo demo-cluster test unit catalogues coverage test-lowest test-loaded test-all lint format types conformance docs audit kill-test load-test fault-test soak fuzz mutants
help:
	@$(DEV) --help

demo demo-cluster test unit catalogues coverage test-lowest test-loaded test-all lint format types docs audit load-test fault-test mutants:
	@$(DEV) $@ $(ARGS)

# The servers of one engine, or of one asyncio host, only: make conformance ENGINE=direct, ENGINE=uvicorn, ENGINE=workers
conformance:
	@$(DEV) $@ $(if $(ENGINE),--engine $(ENGINE)) $(ARGS)

kill-test:
	@$(DEV) kill-test --times $(N) $(ARGS)

soak:
	@$(DEV) soak --minutes $(MINUTES) $(ARGS)

fuzz:
	@$(DEV) fuzz --seconds $(SECONDS) $(ARGS)

# One row or question: make bench WORK=stdio
bench bench-quick:
	@$(DEV) $@ $(if $(WORK),--work $(WORK)) $(ARGS)

bench-check:
	@$(DEV) $@ $(ARGS)

# Every target is a command of dev.py, which makes the environment it needs. Without make: python3 dev.py test
# Another interpreter: make test PYTHON=python3.12      More arguments: make test ARGS="-k cancel"
N ?= 200
ARGS ?=
DEV := $(if $(PYTHON),$(PYTHON) dev.py --python $(PYTHON),python3 dev.py)

.PHONY: help demo test unit lint format types conformance conformance-all docs kill-test load-test
help:
	@$(DEV) --help

demo test unit lint format types conformance conformance-all docs load-test:
	@$(DEV) $@ $(ARGS)

kill-test:
	@$(DEV) kill-test --times $(N) $(ARGS)

# Everything here is one line of bootstrap.py, which also works without make.
PYTHON ?= python3

.PHONY: help demo test install benchmarks clean

help:        ## show this
	@grep -E '^[a-z]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

demo:        ## start a driver and three nodes here, and watch a notebook fan out over them
	@$(PYTHON) bootstrap.py demo

test:        ## pass the tests, installing what they need
	@$(PYTHON) bootstrap.py test

install:     ## install into .venv
	@$(PYTHON) bootstrap.py install

benchmarks:  ## run every benchmark at full length
	@.venv/bin/python -m pip install --quiet -e '.[benchmarks]'
	@for name in startup cell overhead makespan notebook batch reaction; do .venv/bin/python -m benchmarks $$name || exit 1; done

clean:       ## remove what the above made
	rm -rf .venv .demo build *.egg-info

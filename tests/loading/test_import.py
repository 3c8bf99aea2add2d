"""Importing cudadrv loads no driver. The first use loads one."""

import sysconfig

import pytest


def test_import_opens_no_library(script):
    assert not script.quiet("""
        import cudadrv
        with open("/proc/self/maps") as maps:
            print(*[line for line in maps if "libcuda" in line or "_softdriver" in line])
    """).strip()


def test_import_brings_no_large_modules(script):
    """Importing cudadrv imports no large modules: functions that few programs use import them."""
    found = script.quiet("""
        import sys
        import numpy
        before = set(sys.modules)
        import cudadrv
        print(*sorted(set(sys.modules) - before))
    """)
    ours = {name for name in found.split() if name.startswith("cudadrv")}
    seldom = {"_attributes", "_environment", "_processors", "_await", "testing"}
    assert ours
    assert not ours & {f"cudadrv.{name}" for name in seldom}
    large = {"asyncio", "ctypes", "difflib", "importlib.util", "inspect", "logging", "pathlib"}
    assert not set(found.split()) & (large | {"re", "tempfile", "traceback", "urllib", "uuid"})


def test_a_module_that_was_not_imported_is_named(script):
    assert script.quiet("""
        import cudadrv as cu
        for name in ("toolkit", "nothing"):
            try:
                getattr(cu, name)
            except AttributeError as error:
                print(error)
    """).splitlines() == [
        "module 'cudadrv' has no attribute 'toolkit'; import cudadrv.toolkit first",
        "module 'cudadrv' has no attribute 'nothing'",
    ]


def test_dask_is_imported_by_its_own_module_alone(script):
    """Only cudadrv.dask imports Dask. Tests with Dask are in tests/external/test_dask.py."""
    assert "needs Dask and its scheduler: pip install cudadrv[dask]" in script.quiet("""
        import sys
        import cudadrv
        assert not {"dask", "distributed", "cudadrv.dask"} & set(sys.modules)
        sys.modules["dask"] = sys.modules["distributed"] = None   # as where it is not installed
        try:
            import cudadrv.dask
        except ImportError as error:
            print(error)
    """)


def test_import_is_quick(script):
    """Importing cudadrv takes less processor time than importing asyncio, measured alternately."""
    program = """
        import time
        import numpy
        began = time.process_time()
        import {name}
        print(time.process_time() - began)
    """
    # Without OPENBLAS_NUM_THREADS, NumPy's threads spin at first. With PYTHONDONTWRITEBYTECODE,
    # Python would compile the sources each time.
    environment = {"OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""}
    ours, theirs = [], []
    for _ in range(40):  # repeats until the machine is idle for a moment
        for name, times in (("cudadrv", ours), ("asyncio", theirs)):
            times.append(float(script.quiet(program.format(name=name), **environment)))
        if min(ours) < 0.55 * min(theirs):  # the ratio was 0.47 when this was written
            return
    raise AssertionError((min(ours), min(theirs)))


def test_first_use_opens_one(script):
    assert "_softdriver" in script.quiet(
        """
        import cudadrv
        cudadrv.driver_info()
        with open("/proc/self/maps") as maps:
            print(*[line for line in maps if "_softdriver" in line])
    """,
        CUDADRV_DRIVER="software",
    )


def test_the_environment_is_read_on_first_use(script):
    program = """
        import os, cudadrv
        os.environ["CUDADRV_DRIVER"] = "software"
        print(cudadrv.driver_info().is_software)
    """
    assert script.quiet(program, CUDADRV_DRIVER="/no/such/file") == "True\n"


def test_a_driver_that_failed_can_be_replaced(script):
    program = """
        import os, cudadrv
        try:
            cudadrv.driver_info()
        except cudadrv.DriverNotFoundError:
            os.environ["CUDADRV_DRIVER"] = "software"
        print(cudadrv.driver_info().is_software)
    """
    assert script.quiet(program, CUDADRV_DRIVER="/no/such/file") == "True\n"


def test_threads_that_use_it_first_open_it_once(script):
    assert (
        script.quiet("""
        import threading
        import cudadrv as cu
        found = []
        def use():
            found.append(cu.Device(0).context)
        threads = [threading.Thread(target=use) for _ in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(len(found), len(set(map(id, found))))
    """)
        == "8 1\n"
    )


def test_a_child_of_a_process_that_used_no_driver_can_use_one(script):
    assert (
        script.quiet("""
        import os
        import cudadrv as cu
        child = os.fork()
        if child == 0:
            cu.Stream().synchronize()
            os._exit(0)
        print(os.waitpid(child, 0)[1])
    """)
        == "0\n"
    )


def test_without_the_gil_it_is_not_imported(script):
    """Importing cudadrv is refused if the GIL is disabled.

    The program replaces `sys._is_gil_enabled`, so that the test also runs on a Python with a GIL.
    """
    assert (
        script.quiet("""
        import sys
        sys._is_gil_enabled = lambda: False
        try:
            import cudadrv
        except ImportError as error:
            print("PYTHON_GIL=0" in str(error))
    """)
        == "True\n"
    )


@pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python always has a GIL"
)
def test_a_free_threaded_python_takes_its_gil_back(script):
    """A free-threaded Python enables the GIL when cudadrv is imported.

    No module declares that it works without the GIL. So the tests with threads also apply to such a
    Python.
    """
    program = """
        import sys, warnings
        assert not sys._is_gil_enabled()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            import cudadrv
        assert sys._is_gil_enabled()
        print(any("cudadrv" in str(warning.message) for warning in caught))
    """
    assert script.quiet(program) == "True\n"


def test_modules_find_those_that_are_initialized_without_an_import(script):
    """To import them, Cython's code would call `__import__` without names."""
    answer = script.quiet(
        """
        import builtins, importlib, sys
        imported, again = builtins.__import__, []
        def import_it(name, globals=None, locals=None, names=(), level=0):
            if name.startswith("cudadrv._") and name in sys.modules and not names:
                again.append(name)
            return imported(name, globals, locals, names, level)
        builtins.__import__ = import_it
        from cudadrv import _finder
        for name in sorted(_finder.NAMES):
            importlib.import_module(f"cudadrv.{name}")
        print(*again, len(_finder.INITIALIZED) == len(_finder.NAMES))
        """
    )
    assert answer == "cudadrv._finder True\n"


def test_what_is_imported_late_changes_no_record(driver, script):
    """Importing a module while work is unfinished does not change the records of that work."""
    answer = script.quiet(
        """
        import importlib
        import cudadrv as cu
        from cudadrv import _finder
        stream, buffer = cu.Stream(), cu.LockedBuffer.zeros(16)
        buffer.fill_async(1, stream)
        for name in sorted(_finder.NAMES):
            importlib.import_module(f"cudadrv.{name}")
        print(buffer.borrowed)
        """
    )
    assert answer == "True\n"

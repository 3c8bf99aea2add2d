"""Every name of cuda.h is exported. Functions that are not implemented say so and are counted."""

import ctypes
import importlib.util
from pathlib import Path

import pytest

from .client import SUCCESS

pytestmark = pytest.mark.cuda_software

ROOT = Path(__file__).resolve().parents[2]
NOT_SUPPORTED = 801


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


driver_names = load(ROOT / "tools" / "driver_names.py")
NAMES = sorted(driver_names.known_names()[1])
IMPLEMENTED = {symbol for _, _, symbol in driver_names.implemented()}


def is_implemented(name):
    return name.removesuffix("_ptsz").removesuffix("_ptds") in IMPLEMENTED


@pytest.fixture
def exported(software):
    return ctypes.CDLL(software.path)


def test_every_name_is_exported(exported):
    assert [name for name in NAMES if not hasattr(exported, name)] == []


def test_what_is_implemented_is_a_name_of_the_api():
    assert sorted(IMPLEMENTED - set(NAMES)) == []


def test_names_are_those_of_the_header():
    header = load(ROOT / "cuda_header.py").find_cuda_header()
    newest, names = driver_names.known_names()
    if header.version > newest:
        pytest.skip(f"cuda.h is newer than the list: tools/driver_names.py names {header.folder}")
    assert sorted(driver_names.header_names(str(header.folder))[1] - names) == []


@pytest.mark.parametrize("name", [name for name in NAMES if not is_implemented(name)])
def test_not_implemented(software, exported, name):
    before, total = software.calls(name), software.calls()
    assert getattr(exported, name)(None, None, None, None) == NOT_SUPPORTED
    assert software.calls(name) == before + 1
    assert software.calls() == total + 1
    assert name in software.unsupported()


def test_not_found_by_proc_address(software):
    address, result = ctypes.c_void_p(1), ctypes.c_int()
    for name in {driver_names.base_name(name) for name in NAMES}:
        versions = [version for base, version, _ in driver_names.implemented() if base == name]
        known = min(versions, default=99000) <= 13000 or name == "cuGetExportTable"
        arguments = (name.encode(), ctypes.byref(address), 13000, 0, ctypes.byref(result))
        assert software("cuGetProcAddress_v2", *arguments) == SUCCESS
        assert bool(address) == known, name


def test_unknown_function_has_no_calls(software):
    assert software.calls("cuNoSuchFunction") == 0

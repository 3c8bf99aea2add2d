"""Classes that programs cannot call: each way to try says how their objects are made."""

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import cudadrv as cu

ROOT = Path(cu.__file__).parents[1]
REFUSED = [
    (path.stem, name)
    for path in sorted((ROOT / "pyx").rglob("*.pyx"))
    for name in re.findall(r"^only_made_by\((\w+),", path.read_text(encoding="utf-8"), re.MULTILINE)
]


@pytest.mark.parametrize(("module", "name"), REFUSED)
def test_each_way_says_how_objects_are_made(module, name):
    cls = getattr(import_module(f"cudadrv.{module}"), name)
    with pytest.raises(TypeError, match=r"^(use \w|\w+ come from |launches with )") as first:
        cls()
    for make in (
        lambda: cls(1, stream=2),
        lambda: cls.__new__(cls),
        lambda: cls.__new__(cls, 1, name=2),
        lambda: type.__call__(cls),
    ):
        with pytest.raises(TypeError) as error:
            make()
        assert str(error.value) == str(first.value)
    with pytest.raises(TypeError, match="not safe"):
        object.__new__(cls)


def test_other_public_classes_can_be_made():
    """A public class without a constructor has this refusal, or is a base of others."""
    for name in cu.__all__:
        cls = getattr(cu, name)
        if not inspect.isclass(cls) or name in {name for _, name in REFUSED}:
            continue
        made = cls.__init__ is not object.__init__ or cls.__new__ is not object.__new__
        assert made, name
    assert {"Context", "Kernel", "Loan", "Token"} <= {name for _, name in REFUSED}
    abstract = {path.name for path in (ROOT / "pyx").rglob("*.pyx") if _raises_always(path)}
    # Buffer and HostBuffer; Handle. Other classes are derived from them.
    assert abstract == {"_buffer.pyx", "_textures.pyx"}


def _raises_always(path):
    text = path.read_text(encoding="utf-8")
    return re.search(r"def __init__\(self, (?:\*args, )?\*\*kwargs\):\n +raise", text)

"""Where the software driver of this package is."""

from importlib.util import find_spec


def software_path() -> str:
    """Return the path of the software driver that is installed with this package."""
    spec = find_spec(f"{__package__}._softdriver")
    if spec is None or spec.origin is None:
        raise RuntimeError(f"this installation of {__package__} has no software driver")
    return spec.origin

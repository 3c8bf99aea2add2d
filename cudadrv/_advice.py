"""Advice: what the driver was told about managed memory."""

from typing import NamedTuple

from cudadrv._device import Device


class Advice(NamedTuple):
    """What the driver was told about managed memory: see `UnifiedBuffer.advise`.

    ``read_mostly`` is whether readers may have copies; ``preferred`` the place where the pages
    should be, or None; ``accessed_by`` a frozenset of the places whose access should not fault;
    ``last_prefetch`` the place of the last prefetch, or None. A place is a Device or "host"; that
    of a prefetch can be "host:N", a NUMA node. An advice counts if all pages have it.
    """

    read_mostly: bool
    preferred: Device | str | None
    accessed_by: frozenset[Device | str]
    last_prefetch: Device | str | None

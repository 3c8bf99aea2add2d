"""Releasing memory: from the last reference to the driver's free. Other modules cimport it."""

from typing_extensions import disjoint_base

@disjoint_base
class Kept: ...

"""Segment: memory that several processes map. Other modules cimport it."""

from typing import final

@final
class Segment: ...

"""Reserved addresses, and the memory that is mapped to them. Other modules cimport it."""

from typing import final

@final
class Growth: ...

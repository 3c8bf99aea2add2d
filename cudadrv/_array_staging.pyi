from typing import final

@final
class Slabs: ...

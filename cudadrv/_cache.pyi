from typing import final

@final
class Cache: ...

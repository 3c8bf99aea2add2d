from typing import final

@final
class Cache: ...

@final
class Caches: ...

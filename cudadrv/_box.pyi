from typing import final

@final
class Part: ...

from typing import final

@final
class Room: ...

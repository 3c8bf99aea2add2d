from typing import final

@final
class Items: ...

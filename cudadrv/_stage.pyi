from typing import final

@final
class Stage: ...

"""How long a test waits for what must come.

So long that no load of the machine makes a test fail: the limit is for what never comes. Nothing
is asserted about how fast something is, except by counting instructions (tests/performance).
"""

PATIENCE = 1800  # seconds

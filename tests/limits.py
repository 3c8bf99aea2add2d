"""How long a test waits before it counts as hanging.

The limit is so long that no load of the machine makes a test fail. Tests assert nothing about
speed, except by counting instructions (tests/performance).
"""

PATIENCE = 1800  # seconds

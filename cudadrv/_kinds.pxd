"""Buffers of a kind that is chosen elsewhere."""
# No names for other modules.

"""Buffers of a kind that is chosen elsewhere."""
# Other modules need no C names of this module.

"""Reap: give back everything that is not used any more."""

"""Limits of contexts."""

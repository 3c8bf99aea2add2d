"""Instructions in which threads, warps or blocks work together. All drivers run the same tests."""

"""Instructions whose lanes, warps or blocks work together: the same tests run on each driver."""

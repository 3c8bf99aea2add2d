"""Processors: how many this process may use."""

import os
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


def usable_processors() -> int:
    """Return how many processors this process may use at the same time, at least 1.

    The number respects the affinity of the process, the limit of its control group, and
    ``PYTHON_CPU_COUNT`` in Python 3.13 and newer.
    """
    count = getattr(os, "process_cpu_count", lambda: len(os.sched_getaffinity(0)))() or 1
    return max(1, min(count, _quota(count)))


def _quota(count: int) -> int:
    """Return the control group's limit in processors, rounded up; `count` if there is no limit."""
    try:
        if (CGROUPS / "cpu.max").exists():
            limit, period = (CGROUPS / "cpu.max").read_text(encoding="ascii").split()
        else:
            limit = (CGROUPS / "cpu/cpu.cfs_quota_us").read_text(encoding="ascii")
            period = (CGROUPS / "cpu/cpu.cfs_period_us").read_text(encoding="ascii")
        return -(-int(limit) // int(period)) if int(limit) > 0 else count
    except (OSError, ValueError):  # there are no control groups, or the limit is "max"
        return count

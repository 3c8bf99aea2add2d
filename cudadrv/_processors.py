"""Processors: how many this process may use."""

import os
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


def usable_processors() -> int:
    """The processors that this process may run on at a time, at least 1.

    Its affinity counts, Python's ``PYTHON_CPU_COUNT`` where Python knows it, and the limits of its
    control group.
    """
    count = getattr(os, "process_cpu_count", lambda: len(os.sched_getaffinity(0)))() or 1
    return max(1, min(count, _quota(count)))


def _quota(count: int) -> int:
    """The control group's share of processor time, in whole processors; `count` without a limit."""
    try:
        if (CGROUPS / "cpu.max").exists():
            limit, period = (CGROUPS / "cpu.max").read_text(encoding="ascii").split()
        else:
            limit = (CGROUPS / "cpu/cpu.cfs_quota_us").read_text(encoding="ascii")
            period = (CGROUPS / "cpu/cpu.cfs_period_us").read_text(encoding="ascii")
        return -(-int(limit) // int(period)) if int(limit) > 0 else count
    except (OSError, ValueError):  # no control groups, or "max"
        return count

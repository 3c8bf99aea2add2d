"""The sections in their order."""

import importlib

NAMES = [
    "library",
    "devices",
    "attributes",
    "lifecycle",
    "contexts",
    "limits",
    "device_memory",
    "host_memory",
    "managed",
    "places",
    "virtual",
    "pools",
    "placed_pools",
    "pool_uses",
    "pointers",
    "copies1d",
    "copies2d",
    "copies3d",
    "fills",
    "streams",
    "events",
    "values",
    "host_functions",
    "capture",
    "capture_calls",
    "graphs",
    "graph_nodes",
    "graph_runs",
    "ordering",
    "blocking",
    "proc_address",
    "fork",
    "modules",
    "jit",
    "functions",
    "libraries",
    "launches",
    "kernel_parameters",
    "link_logs",
    "old_launches",
    "cooperation",
    "kernels",
    "kernel_faults",
    "peers",
]


def load(name):
    return importlib.import_module(f"ask_{name}").section

"""How fast other people's programs run on the software driver, against their own CPU backends.

    python benchmarks/clients.py ENVIRONMENTS [--only CLIENT ...] [--rounds N] [--settings TEXT]
        [--json FILE]

ENVIRONMENTS is a folder of virtual environments: `drjit` (which also needs LLVM's library),
`quadrants`, `halide` and `openmm`, each with the client as its page in docs/clients installs it.
Each client does the same work in turns with both backends, in one process, and the ratio of the
medians counts. On a machine with other work, the ratio of processor times is the meaningful one. A
first run, which compiles, is not timed.
"""

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 7
LEAST = 0.02  # seconds: quick work is repeated until this time is over, and then timed
SIZE = 1 << 24  # items: arrays that are larger than a cache


def drjit():
    import drjit as dr
    from drjit import cuda, llvm

    def works(backend):
        Float, Index = backend.Float, backend.UInt32
        x, index = dr.linspace(Float, 0, 1, SIZE), dr.arange(Index, SIZE) * 40503 % SIZE
        dr.eval(x, index)

        def done(result):
            dr.eval(result)
            dr.sync_thread()

        def loop():
            state = Index(0), x
            step = lambda i, y: (i + 1, dr.fma(y, 0.5, 1))  # noqa: E731
            done(dr.while_loop(state, lambda i, y: i < 100, step)[1])

        return {
            "sin * exp": lambda: done(dr.sin(x) * dr.exp(-x)),
            "gather": lambda: done(dr.gather(Float, x, index)),
            "sum": lambda: done(dr.sum(x)),
            "loop of 100 fma": loop,
        }

    yield works(llvm), works(cuda)


def quadrants():
    import numpy as np
    import quadrants as qd

    edge = 512

    def works(arch):
        qd.init(arch=arch, log_level=qd.ERROR)
        x, y = qd.field(qd.f32, shape=SIZE), qd.field(qd.f32, shape=SIZE)
        a, b, c = (qd.field(qd.f32, shape=(edge, edge)) for _ in range(3))
        a.from_numpy(np.ones((edge, edge), np.float32))
        b.from_numpy(np.ones((edge, edge), np.float32))

        @qd.kernel
        def saxpy():
            for i in x:
                y[i] = 0.5 * x[i] + y[i]

        @qd.kernel
        def matmul():
            for i, j in c:
                total = 0.0
                for k in range(edge):
                    total += a[i, k] * b[k, j]
                c[i, j] = total

        def synchronized(kernel):
            def run():
                kernel()
                qd.sync()

            return run

        return {"saxpy": synchronized(saxpy), "matmul": synchronized(matmul)}

    # Initializing one backend ends the other one. So all rounds of one backend are measured, then
    # all rounds of the other; this is done three times.
    for _ in range(3):
        yield works(qd.cpu), None
        yield None, works(qd.cuda)


def halide():
    import halide as hl
    import numpy as np

    edge = 4096
    data = np.arange((edge + 2) ** 2, dtype=np.float32).reshape(edge + 2, edge + 2)

    def works(device):
        x, y, xi, yi = hl.Var("x"), hl.Var("y"), hl.Var("xi"), hl.Var("yi")
        image, across, both = hl.Buffer(data), hl.Func("across"), hl.Func("both")
        across[x, y] = (image[x, y] + image[x + 1, y] + image[x + 2, y]) / 3
        both[x, y] = (across[x, y] + across[x, y + 1] + across[x, y + 2]) / 3
        target = hl.get_host_target()
        if device:
            target = target.with_feature(hl.TargetFeature.CUDA)
            across.compute_root().gpu_tile(x, y, xi, yi, 16, 16)
            both.gpu_tile(x, y, xi, yi, 16, 16)
        else:
            across.compute_root().parallel(y).vectorize(x, 8)
            both.parallel(y).vectorize(x, 8)
        both.compile_jit(target)
        out = hl.Buffer(hl.Float(32), [edge, edge])

        def blur():
            both.realize(out, target)
            out.device_sync()

        return {"blur": blur}

    yield works(False), works(True)


def openmm():
    import openmm as mm

    def works(platform):
        system, force, positions = mm.System(), mm.NonbondedForce(), []
        force.setNonbondedMethod(mm.NonbondedForce.CutoffPeriodic)
        system.setDefaultPeriodicBoxVectors((4, 0, 0), (0, 4, 0), (0, 0, 4))
        for i in range(1000):
            system.addParticle(10)
            force.addParticle(0, 0.3, 0.5)
            positions.append(mm.Vec3(i % 10 * 0.4, i // 10 % 10 * 0.4, i // 100 * 0.4))
        system.addForce(force)
        integrator = mm.VerletIntegrator(0.002)
        context = mm.Context(system, integrator, mm.Platform.getPlatformByName(platform))
        context.setPositions(positions)

        def step():
            integrator.step(1)
            context.getState(positions=True)  # waits

        step.keep = context
        return {"step": step}

    yield works("CPU"), works("CUDA")


CLIENTS = {"drjit": drjit, "quadrants": quadrants, "halide": halide, "openmm": openmm}


def seconds(work):
    """Repeat a work for `LEAST` seconds. Return the seconds and processor seconds of one run."""
    start, busy, runs = time.perf_counter(), time.process_time(), 0
    while not runs or time.perf_counter() - start < LEAST:
        work()
        runs += 1
    return (time.perf_counter() - start) / runs, (time.process_time() - busy) / runs


def measure(client, rounds):
    """Return rows with the medians of both backends."""
    found = {}
    for pair in CLIENTS[client]():
        names = list(pair[0] or pair[1])
        for name in names:
            both = [works and works[name] for works in pair]
            for work in filter(None, both):
                work()
            times = found.setdefault(name, ([], []))
            for _ in range(rounds):
                for work, results in zip(both, times, strict=True):
                    if work:
                        results.append(seconds(work))
    return [row(client, name, *times) for name, times in found.items()]


def row(client, work, cpu, software):
    (cpu, cpu_busy), (software, busy) = (
        [statistics.median(each) for each in zip(*times, strict=True)] for times in (cpu, software)
    )
    return {
        "client": client, "work": work, "cpu_seconds": cpu, "cpu_processor_seconds": cpu_busy,
        "software_seconds": software, "software_processor_seconds": busy, "ratio": software / cpu,
        "processor_ratio": busy / cpu_busy,
    }  # fmt: skip


def run(client, options):
    """Measure a client in its environment, on the software driver."""
    python = Path(options.environments, client, "bin", "python")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rows.json")
        worker = [python, __file__, options.environments, "--client", client]
        worker += [f"--rounds={options.rounds}", "--json", file]
        command = [sys.executable, "-m", "cudadrv", "run", "--error-exitcode=9", "--", *worker]
        environment = {**os.environ, "CUDADRV_SOFTWARE": options.settings}
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        return json.loads(file.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("environments", type=Path, help="a folder of virtual environments")
    parser.add_argument("--only", nargs="*", choices=CLIENTS, default=list(CLIENTS))
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="default: %(default)s")
    parser.add_argument("--settings", default="", help="of the software driver, such as races=off")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--client", choices=CLIENTS, help=argparse.SUPPRESS)  # the worker
    options = parser.parse_args()
    if options.client:
        options.json.write_text(json.dumps(measure(options.client, options.rounds)))
        return
    load = os.getloadavg()[0]
    rows = [row for client in options.only for row in run(client, options)]
    processors = len(os.sched_getaffinity(0))
    print(f"{processors} processors, load {load:.1f} before, {datetime.date.today()}")
    print("| client | work | CPU backend, ms | software driver, ms | ratio | of processor times |")
    print("|---|---|---|---|---|---|")
    for each in rows:
        print(
            f"| {each['client']} | {each['work']} | {each['cpu_seconds'] * 1e3:.2f}"
            f" | {each['software_seconds'] * 1e3:.2f} | {each['ratio']:.1f}"
            f" | {each['processor_ratio']:.1f} |"
        )
    if options.json:
        head = {"date": datetime.date.today().isoformat(), "cpus": processors, "load": load}
        options.json.write_text(json.dumps({**head, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()

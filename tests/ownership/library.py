"""Random programs through the public API, on the library and on the oracle, side by side.

    python tests/ownership/library.py --operations 1000000 --seed 1 --policy wait --schedule lazy

As in referee.py for the engine alone, there are many short programs rather than a long one. Each
call must have the oracle's outcome. Each byte that the host sees must be what the program wrote. On
the software driver, no accepted operation may be a data race under any schedule.

CUDADRV_DRIVER=cuda runs the programs on a GPU. There, bytes are compared, but races are not
reported, no driver calls fail, and few contexts are created. With both drivers, blocking copies are
cut into chunks of a few bytes; otherwise only large copies are cut. The last programs await tokens.
From the first of these programs on, the process has a second thread. With ``--threads 4``, all
calls are made by 4 threads at once (library_shared.py); with ``--threads 4 --replay``, the oracle
replays what the engine has decided (library_replayed.py).
"""

import argparse
import faulthandler
import gc
import os
import sys
import time
import weakref
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from library_programs import LONGEST, POLICIES, Program
from pair import Disagreement

SCHEDULES = ("eager", "lazy", "random")


def run(seed, policy="strict", awaits=False):
    """Run one program. Returns its number of calls and the answers, or raises Disagreement.

    From the first program with `awaits` on, the process has a second thread.
    """
    program = Program(seed, policy, awaits)
    steps = program.random.randint(10, LONGEST)
    try:
        program.run(steps)
    except Exception as error:  # any other exception of the library is a failure, too
        lines = [f"{error}", f"program {seed!r}, policy {policy}:", *map(repr, program.log)]
        expected = isinstance(error, Disagreement)
        raise Disagreement("\n  ".join(lines)) from None if expected else error
    finally:
        program.end()
    answers = program.session.answers
    contexts = [weakref.ref(place.context) for place in program.session.places[1:]]
    del program
    if any(context() is not None and not context().primary for context in contexts):
        # Otherwise a created context would be destroyed in the middle of a later program.
        gc.collect()
    return answers.total(), answers


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--operations", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=1, help="disagreements to print")
    parser.add_argument("--stop", action="store_true", help="at the first disagreement")
    parser.add_argument("--policy", choices=[*POLICIES, "all"], default="all")
    parser.add_argument("--graphs", action="store_true", help="only programs with graphs")
    parser.add_argument("--functions", action="store_true", help="only with functions")
    parser.add_argument("--signals", action="store_true", help="only programs with signals")
    parser.add_argument("--boxes", action="store_true", help="only programs that use boxes")
    parser.add_argument("--textures", action="store_true", help="only programs with textures")
    parser.add_argument("--contexts", action="store_true", help="only with several contexts")
    parser.add_argument("--tickets", action="store_true", help="only with a second process")
    parser.add_argument("--threads", type=int, help="in so many threads, without the oracle")
    parser.add_argument("--replay", action="store_true", help="in threads, with the oracle")
    parser.add_argument("--schedule", choices=[*SCHEDULES, "all"], default="all")
    parser.add_argument("--guard", action="store_true", help="with page guards")
    options = parser.parse_args()
    faulthandler.enable()
    if options.guard:
        os.environ["CUDADRV_GUARD"] = "1"
    os.environ.setdefault("CUDADRV_DRIVER", "software")
    os.environ.setdefault("CUDADRV_SOFTWARE", "devices=2")
    if options.replay and not options.threads:
        parser.error("--replay is for --threads")
    if options.threads:
        import library_shared

        library_shared.begin()
        in_threads = library_shared.run
        options.stop = True  # a failed program may have left anything
    if options.replay:
        import library_replayed

        in_threads = library_replayed.run
    policies = list(POLICIES) if options.policy == "all" else [options.policy]
    if options.threads and not options.replay:
        policies = [
            policy for policy in policies if policy != "unchecked"
        ]  # under "unchecked", races are allowed
    schedules = SCHEDULES if options.schedule == "all" else [options.schedule]
    Program.with_contexts = 1 if options.contexts else Program.with_contexts
    Program.with_boxes = 1 if options.boxes else Program.with_boxes
    Program.with_functions = 1 if options.functions else Program.with_functions
    Program.with_signals = 1 if options.signals else Program.with_signals
    if options.textures:
        Program.with_textures, Program.with_contexts = 1, 0
    Program.with_graphs = 1 if options.graphs else Program.with_graphs
    if options.tickets:
        use_tickets()
    operations = programs = disagreements = 0
    answers = Counter()
    begin = time.perf_counter()
    while operations < options.operations and time.perf_counter() - begin < options.seconds:
        choose_schedule(schedules[programs % len(schedules)], programs)
        programs += 1
        policy = policies[programs // len(schedules) % len(policies)]
        try:
            seed = f"{options.seed}.{programs}"
            if options.threads:
                calls, found = in_threads(seed, policy, options.threads)
            else:
                calls, found = run(seed, policy, operations > 0.7 * options.operations)
        except Disagreement as error:
            disagreements += 1
            calls, found = LONGEST, {}
            if disagreements <= options.show:
                print(error, end="\n\n", flush=True)
            if options.stop:
                break
        operations += calls
        answers.update(found)
    if options.tickets:
        Program.partner.stop()
    seconds = time.perf_counter() - begin
    print(f"{operations} operations in {programs} programs, {operations / seconds:.0f} per second")
    print(", ".join(f"{answer}: {count}" for answer, count in sorted(answers.items())))
    print(f"{disagreements} disagreements")
    return 1 if disagreements else 0


def use_tickets():
    """Start the other process, and let all programs lend buffers to it."""
    from library_tickets import Partner

    Program.with_tickets, Program.partner = 1, Partner()


def choose_schedule(schedule, seed):
    """Set the schedule of the software driver. Does nothing with a real driver."""
    from cudadrv import driver_info, testing

    if driver_info().is_software:
        testing.configure(f"schedule={schedule},seed={seed}")


if __name__ == "__main__":
    sys.exit(main())

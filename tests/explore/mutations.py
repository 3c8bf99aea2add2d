"""Removes the rules of dependence, one at a time, and prints which tests notice.

    python tests/explore/mutations.py [name ...]

Each of MUTATIONS is (name, file, old text, new text). The old text occurs once in the file. For
each mutation, the software driver is built with it, and the comparisons of all orders with the
orders of the search run again.
"""

import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STEPS, RUN, SEARCH = "work/steps.cpp", "explore/run.cpp", "explore/search.cpp"
CHOOSE = "work/choose.cpp"
TESTS = [f"tests/explore/test_{name}.py" for name in ("choices", "search", "limits")]

MUTATIONS = [
    ("two writes commute", RUN, "overlap(writes, other.writes) || ", ""),
    ("a write and a later read commute", RUN, "overlap(writes, other.reads) ||\n", "\n"),
    ("a read and a later write commute", RUN, " ||\n           overlap(reads, other.writes)", ""),
    ("an end changes nothing", STEPS, "    touched.writes.push_back(end_of(operation));\n", ""),
    (
        "a query asks for nothing",
        STEPS,
        "        step.touched.reads.push_back(end_of(*operation));\n",
        "        static_cast<void>(operation);\n",
    ),
    (
        "a host function shares nothing with the host",
        STEPS,
        "        touched.writes.push_back(explore::mark_of_host);\n",
        "",
    ),
    (
        "the host sees nothing of host functions",
        STEPS,
        "    step.touched.reads.push_back(explore::mark_of_host);\n",
        "",
    ),
    (
        "a conditional node reads no value",
        STEPS,
        "        touched.reads.push_back(condition(number));\n",
        "        static_cast<void>(number);\n",
    ),
    (
        "a kernel sets no value of a conditional node",
        STEPS,
        "        touched.writes.push_back(condition(number));\n",
        "        static_cast<void>(number);\n",
    ),
    (
        "output of kernels commutes",
        STEPS,
        "    if (outcome.prints)\n        touched.writes.push_back(explore::mark_of_output);\n",
        "",
    ),
    (
        "malloc of kernels commutes",
        STEPS,
        "    if (outcome.allocates)\n        touched.writes.push_back(explore::mark_of_heap);\n",
        "",
    ),
    ("atomic accesses commute", STEPS, "    add(touched.writes, outcome.updates);\n", ""),
    (
        "a kernel uses nothing before it lets the next one begin",
        STEPS,
        "    add_outcome(step.touched, operation, outcome);\n",
        "",
    ),
    (
        "a kernel uses nothing before it waits for the one before",
        STEPS,
        "    add_early(step.touched, outcome);\n",
        "",
    ),
    (
        "an error of a kernel commutes",
        STEPS,
        "    (fails ? touched.writes : touched.reads).push_back(device);\n",
        "    touched.reads.push_back(device);\n",
    ),
    (
        "a long kernel commutes",
        CHOOSE,
        "            unknown.status = CUDA_ERROR_UNKNOWN;\n",
        "",
    ),
    (
        "uses of registered memory by the host are seen",
        STEPS,
        "        if (!memory || memory->on_device() ||",
        "        if (!memory || memory->kind == MemoryKind::Registered || memory->on_device() ||",
    ),
    (
        "a wait tells the host nothing",
        STEPS,
        "    known_.join(*operation.before);\n"
        "    known_.raise(operation.track->slot, operation.tick - !itself);\n",
        "    static_cast<void>(itself);\n",
    ),
    (
        "work is not behind the host's last look",
        STEPS,
        "        after.push_back(operation.behind - 1);\n",
        "        static_cast<void>(after);\n",
    ),
    (
        "the program's memory is where it was",
        RUN,
        "            range = {of_program, of_program};\n",
        "            static_cast<void>(range);\n",
    ),
    (
        "a copy reads its source in its turn",
        "stream/copy_batch.cpp",
        "    return copy.order == Order::Any && state().chooser.replays() &&\n",
        "    return copy.order == Order::Any && state().chooser.replays() && false &&\n",
    ),
    (
        "a sleeper never wakes",
        SEARCH,
        "sleeper.actor != node.chosen && !sleeper.next.conflicts(node.made.touched)",
        "sleeper.actor != node.chosen",
    ),
    (
        "nobody sleeps",
        SEARCH,
        "        node.explored.push_back({node.chosen, node.made.touched.in_any_run()});\n",
        "        node.explored.push_back({node.chosen, {{}, {{0, ~size_t(0)}}}});\n",
    ),
]


def changed(file, old, new):
    """Return the text of a file of the software driver with the mutation."""
    text = (ROOT / "softdriver" / file).read_text(encoding="utf-8")
    if text.count(old) != 1:
        raise ValueError(f"{file} has the old text {text.count(old)} times: {old!r}")
    return text.replace(old, new)


def build(folder, file, text):
    """Build the software driver in a folder, with the objects of the last build for the rest."""
    unit = file.partition("/")[0]
    source = folder / Path(file).name
    source.write_text(text, encoding="utf-8")
    others = sorted(
        path for path in (ROOT / "softdriver" / unit).glob("*.cpp") if path.name != source.name
    )
    everything = folder / "unit.cpp"
    everything.write_text("".join(f'#include "{path}"\n' for path in [source, *others]))
    mutated = folder / f"{unit}.o"
    compiler = os.environ.get("CXX", "g++").split()
    flags = ["-O1", "-std=c++17", "-pthread", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off"]
    flags += ["-fno-math-errno", "-fno-trapping-math", "-iquote", str(ROOT / "softdriver")]
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    flags += [f"-I{home}/include", f"-I{sysconfig.get_path('include')}"]
    subprocess.run([*compiler, *flags, "-c", everything, "-o", mutated], check=True)
    objects = [path for path in ROOT.glob("build/temp*/build/temp*/*.o") if path.stem != unit]
    objects += ROOT.glob("build/temp*/softdriver/*/*.o")  # files that are no part of a unit
    driver = folder / "driver.so"
    subprocess.run([*compiler, "-shared", "-pthread", mutated, *objects, "-o", driver], check=True)
    return driver


def first_failure(driver):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    # Programs find the driver that is built in the tree, not the mutated one.
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=no", "-p", "no:benchmark"]
    done = subprocess.run(
        [*command, f"--cuda-driver={driver}", "-k", "not tmp_path", *TESTS],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    lines = done.stdout.splitlines()
    if broken := [line for line in lines if line.startswith("ERROR")]:
        raise RuntimeError(f"the tests do not run: {broken[0]}")
    failed = next((line for line in lines if line.startswith("FAILED")), None)
    if failed is None and done.returncode:
        raise RuntimeError(f"pytest ended with status {done.returncode}:\n{done.stdout[-2000:]}")
    return failed


def main(names):
    unnoticed = []
    for name, file, old, new in MUTATIONS:
        if names and name not in names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            failure = first_failure(build(Path(folder), file, changed(file, old, new)))
        print(f"{name}: {failure or 'NOT NOTICED'}", flush=True)
        if failure is None:
            unnoticed.append(name)
    return len(unnoticed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

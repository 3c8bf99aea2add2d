"""A compiler that is a shell script. The tests find no other compiler."""

import os
import time
from pathlib import Path

import pytest

from cudadrv import toolkit
from cudadrv._compile_inputs import now

# A program in place of nvcc. As nvcc does, it preprocesses the source with the C compiler, and
# prints this call with `-dryrun`.
SCRIPT = """#!/bin/sh
case "$*" in
    --version) echo "Cuda compilation tools, release {release}, V{release}.1"; exit 0;;
    --list-gpu-arch) printf 'compute_75\\ncompute_80\\ncompute_120\\n'; exit 0;;
esac
[ "$1" = -dryrun ] || echo "$*" >> {calls}
left=$#
while [ $left -gt 0 ]; do
    case "$1" in
        -dryrun) dryrun=yes;;
        -ptx | -arch=*) ;;
        -x) shift; left=$((left - 1));;
        -o) output=$2; shift; left=$((left - 1));;
        *) set -- "$@" "$1"; file=$1;;
    esac
    shift
    left=$((left - 1))
done
if [ $dryrun ]; then
    {{ printf '#$ cc -E -x c++'; printf ' "%s"' "$@"; echo; }} >&2
    exit 0
fi
grep -q warn "$file" && echo "$file(1): warning: careful" >&2
grep -q wrong "$file" && echo "$file(1): error: this is wrong" >&2 && exit 2
grep -q nothing "$file" && exit 0
{{
    echo ".version {ptx}"
    echo ".target sm_75"
    {{ cat "$file"; echo; cc -E -P -x c++ "$@" 2> /dev/null; }} | sed 's/^/\\/\\/ /'
}} > "$output"
"""


class FakeNvcc:
    """A script in place of nvcc, in a toolkit folder. `calls` are its command lines so far."""

    def __init__(self, home: Path, release: str = "13.0", ptx: str = "9.0") -> None:
        self.home = home
        self.log = home / "calls"
        self.path = home / "bin" / "nvcc"
        self.path.parent.mkdir(parents=True)
        self.say(release, ptx)

    def say(self, release: str, ptx: str) -> None:
        """Write the script, so that it reports this release and makes PTX of this version."""
        self.path.write_text(SCRIPT.format(release=release, ptx=ptx, calls=self.log))
        self.path.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("CUDADRV_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def make_nvcc():
    """A function that writes an nvcc script with a folder, a release and a PTX version."""
    return FakeNvcc


@pytest.fixture
def nvcc(tmp_path, cache, monkeypatch) -> FakeNvcc:
    """The only nvcc that the test finds. The test has a cache of its own."""
    fake = FakeNvcc(tmp_path / "toolkit")
    monkeypatch.setenv("CUDA_HOME", str(fake.home))
    for name in [name for name in os.environ if name.startswith("NVCC_")]:
        monkeypatch.delenv(name)
    return fake


@pytest.fixture
def settle():
    """A function that waits until a change of a file would also change its modification time.

    PTX is not kept if a file may have changed while the compiler was called.
    """

    def wait(*paths: Path) -> None:
        while any(path.lstat().st_ctime_ns >= now() for path in paths):
            time.sleep(0.001)

    return wait


@pytest.fixture
def real():
    """A function that returns the real compiler of a name, or skips the test if there is none."""

    def find(name: str) -> toolkit.Compiler:
        try:
            return toolkit.find_compilers(name)[0]
        except toolkit.CompilerNotFoundError as error:
            pytest.skip(str(error).partition("\n")[0])

    return find


@pytest.fixture(params=["nvcc", "nvrtc"])
def compiler(request, cache, real) -> str:
    """The name of each real compiler on this machine."""
    return real(request.param).name

"""The cache: what is compiled again, where PTX is kept, and damaged caches, which are no error."""

import contextlib
import os
import socket
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from limits import PATIENCE

from cudadrv import toolkit
from cudadrv._compile_cache import Cache, Entry, cache_folder
from cudadrv._compile_inputs import Snapshot

STATE = Snapshot([], "", [], [], [], [], ["", ""], "")


def compile_(source="k", **options):
    return toolkit.compile(source, **{"arch": "compute_75", **options})


def test_the_same_is_compiled_once(nvcc):
    assert compile_() == compile_()
    assert len(nvcc.calls) == 1


def test_switched_off(nvcc, cache, monkeypatch):
    compile_(cache=False)
    compile_(cache=False)
    monkeypatch.setenv("CUDADRV_CACHE_DIR", "off")
    compile_()
    compile_()
    assert len(nvcc.calls) == 4
    assert not cache.exists()


@pytest.mark.parametrize(
    "changed",
    [
        {"source": "other"},
        {"arch": "compute_80"},
        {"options": ["-DX"]},
        {"name": "other.cu"},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_what_differs_is_compiled_again(nvcc, changed):
    compile_()
    compile_(**changed)
    assert len(nvcc.calls) == 2


def test_options_are_not_run_together(nvcc):
    compile_(options=["-DA", "B"])
    compile_(options=["-DAB"])
    assert len(nvcc.calls) == 2


def test_another_release_compiles_again(nvcc):
    compile_()
    nvcc.say("13.1", "9.1")
    assert compile_().startswith(".version 9.1")


def test_another_script_of_the_same_release_compiles_again(nvcc):
    """nvcc may be a script that adds options, as conda's is."""
    compile_()
    nvcc.path.write_text(nvcc.path.read_text().replace("cc -E -P", "cc -E -P -DA"))
    compile_()
    assert len(nvcc.calls) == 2


@pytest.mark.parametrize("variable", ["NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "CPATH"])
def test_what_the_environment_adds(nvcc, monkeypatch, variable):
    compile_()
    monkeypatch.setenv(variable, "-DX")
    compile_()
    assert len(nvcc.calls) == 2


@pytest.fixture
def changing(nvcc, tmp_path, settle):
    """A function that has the compiler script run a command while it compiles a file."""

    def change(command: str) -> Path:
        for name in ("main.cu", "a.h"):
            (tmp_path / name).write_text(f"{name}\n")
        path = tmp_path / "main.cu"
        path.write_text('#include "a.h"\n')
        nvcc.path.write_text(nvcc.path.read_text().replace("\nwhile", f"\n{command}\nwhile"))
        settle(*tmp_path.rglob("*"))
        return path

    return change


@pytest.mark.parametrize(
    "command",
    ["echo x > {}/main.cu", "echo x > {}/a.h", "cd {} && echo x > b.h && mv b.h a.h"],
)
def test_what_changes_meanwhile_is_not_kept(nvcc, tmp_path, changing, settle, command):
    """If a file changes while it is compiled, the PTX may be of either content."""
    source = changing(command.format(tmp_path))
    text = {name: (tmp_path / name).read_text() for name in ("main.cu", "a.h")}
    compile_(source)
    for name, before in text.items():
        (tmp_path / name).write_text(before)
    settle(*tmp_path.rglob("*"))
    compile_(source)
    assert len([call for call in nvcc.calls if "-dryrun" not in call]) == 2


@pytest.mark.parametrize(
    "text",
    [
        "#" + "/**/" * 200 + "define X",
        "#/*" * 10_000,
        "#if 0\n" + "#" * 10_000 + " " * 10_000 + "\n#endif",
        "#if " + '__has_include("b.h") || ' * 5_000 + "0\n#endif",
        "\\ " * 10_000,
        "".join(f"#define A{at + 1}(X) A{at}(X)\n" for at in range(1000)),
        "#define A0(X) __has_include(X)\n"
        + "".join(f"#define A{at + 1}(X) A{at}(X)\n" for at in range(1000)),
    ],
    ids=range(7),
)
def test_a_text_that_is_hard_to_search(nvcc, tmp_path, settle, text):
    """The time to search a source for conditions on files is proportional to its length."""
    path = tmp_path / "main.cu"
    path.write_text(text + "\n")
    settle(path)
    compile_(path)
    compile_(path)
    assert len(nvcc.calls) in (1, 2)


@pytest.mark.parametrize("name", ["SUNPRO_DEPENDENCIES", "DEPENDENCIES_OUTPUT"])
def test_somebody_else_gets_the_list_of_files(nvcc, tmp_path, monkeypatch, name):
    """PTX is not kept if a variable names the only file to which the compiler lists its inputs."""
    monkeypatch.setenv(name, str(tmp_path / "list"))
    for _ in range(2):
        compile_()
    assert len(nvcc.calls) == 2
    assert (tmp_path / "list").exists()


def test_an_nvcc_that_says_nothing(nvcc):
    """PTX is not kept if nvcc does not list the files it read, or the commands it ran."""
    script = nvcc.path.read_text()
    for missing in ("cc -E -x c++", "-dryrun) dryrun=yes;;"):
        nvcc.path.write_text(script.replace(missing, "-none);;" if ")" in missing else "false"))
        for _ in range(2):
            compile_(missing)
    assert len([call for call in nvcc.calls if "-dryrun" not in call]) == 4


def instead(make):
    """Return a function that deletes a file, and makes something else in its place."""

    def damage(path: Path) -> None:
        path.unlink()
        make(path)

    return damage


def belongs_to_another(path: Path) -> None:
    try:
        os.chown(path, 12345, -1)
    except PermissionError:
        pytest.skip("only root can give a file away")


def device(path: Path) -> None:
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero
    except PermissionError:
        pytest.skip("only root can make a device")


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(path.parent):
        server.bind(path.name)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda path: path.write_bytes(b""), id="empty"),
        pytest.param(lambda path: path.write_bytes(path.read_bytes()[:-1]), id="truncated"),
        pytest.param(lambda path: path.write_bytes(b"\xff" * 100), id="bytes"),
        pytest.param(lambda path: path.write_text("x" * 64 + "\n.version 9.0"), id="wrong"),
        pytest.param(lambda path: os.truncate(path, 1 << 40), id="huge"),
        pytest.param(lambda path: path.chmod(0), id="unreadable"),
        pytest.param(lambda path: path.chmod(0o666), id="others can write it"),
        pytest.param(belongs_to_another, id="of another user"),
        pytest.param(instead(Path.mkdir), id="folder"),
        pytest.param(instead(os.mkfifo), id="FIFO"),
        pytest.param(instead(device), id="device"),
        pytest.param(instead(listening), id="socket"),
        pytest.param(instead(lambda path: path.symlink_to(path)), id="link to itself"),
        pytest.param(instead(lambda path: path.symlink_to("/dev/zero")), id="link to a device"),
        pytest.param(instead(lambda path: path.symlink_to("none")), id="link to nothing"),
    ],
)
def test_damaged_file(nvcc, cache, damage, request):
    expected = compile_()
    (kept,) = cache.glob("*.ptx")
    damage(kept)
    assert compile_() == expected
    case = request.node.callspec.id
    if case == "unreadable" and os.geteuid() == 0:
        assert len(nvcc.calls) == 1, "root can read it"
    else:
        assert len(nvcc.calls) == 2
    assert [path for path in cache.iterdir() if path.suffix == ".new"] == []
    if case != "folder":  # the cache does not delete folders
        before = len(nvcc.calls)
        assert compile_() == expected
        assert len(nvcc.calls) == before, "the file was replaced"


def test_an_entry_of_another_key(nvcc, cache):
    """An entry of the cache that belongs to another source is not used."""
    expected = compile_("one")
    (one,) = cache.glob("*.ptx")
    compile_("two")
    (two,) = set(cache.glob("*.ptx")) - {one}
    one.write_bytes(two.read_bytes())
    assert compile_("one") == expected


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777])
def test_a_folder_that_others_can_write(nvcc, cache, mode, caplog):
    compile_()
    cache.chmod(mode)
    for _ in range(2):
        compile_()
        compile_("other")
    assert len(nvcc.calls) == 5, "nothing was read from it"
    assert len(list(cache.iterdir())) == 1, "nor was anything put there"
    (record,) = caplog.records
    assert record.getMessage() == (
        f"compiled PTX is not kept: others can write to {cache} (mode {mode:o}; chmod go-w mends"
        " that). Or set CUDADRV_CACHE_DIR to a folder of your own, or to 'off'"
    )
    cache.chmod(0o755)
    compile_()
    assert len(nvcc.calls) == 5


def test_a_folder_of_somebody_else(nvcc, cache, monkeypatch, caplog):
    compile_()
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    status = cache.stat()
    other = os.stat_result((*status[:4], user + 2, *status[5:]))
    stat = Path.stat
    monkeypatch.setattr(
        Path, "stat", lambda path, **given: other if path == cache else stat(path, **given)
    )
    compile_()
    assert len(nvcc.calls) == 2
    assert f"{cache} belongs to user {user + 2}, and this process to user {user + 1}" in caplog.text


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.write_text("a file where the folder should be"),
        os.mkfifo,
        lambda path: path.symlink_to(path),
        lambda path: path.symlink_to("/dev/null"),
        lambda path: path.symlink_to("none/none"),
    ],
    ids=["file", "FIFO", "link to itself", "link to a device", "link to nothing"],
)
def test_folder_that_cannot_be_made(nvcc, cache, make):
    make(cache)
    compile_()
    compile_()
    assert len(nvcc.calls) == 2


def test_a_folder_that_cannot_be_written(nvcc, monkeypatch):
    """PTX is taken from a folder that cannot be written, although no file in it gets a new time."""
    expected = compile_()

    def refuse(*arguments, **more):
        raise PermissionError

    monkeypatch.setattr(os, "utime", refuse)
    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    assert compile_() == expected
    assert len(nvcc.calls) == 1
    for _ in range(2):
        compile_("other")
    assert len(nvcc.calls) == 3


@pytest.mark.parametrize("relative", [False, True])
def test_a_working_directory_that_was_deleted(nvcc, cache, tmp_path, monkeypatch, relative):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    if relative:
        monkeypatch.setenv("CUDADRV_CACHE_DIR", "cache")
    for _ in range(2):
        assert "// k" in compile_()
    assert len(nvcc.calls) == 2


@pytest.mark.parametrize("text", ["\ud800", "k\udfff"])
def test_what_no_file_can_hold(tmp_path, text):
    cache = Cache(tmp_path)
    cache.store("key", Entry(text, STATE))
    cache.store("key", Entry("k", STATE._replace(identity=text)))
    assert cache.load("key") == Entry("k", STATE._replace(identity=text))
    assert len(list(tmp_path.iterdir())) == 1


def test_only_the_user_can_read_it(nvcc, cache):
    compile_()
    assert cache.stat().st_mode & 0o777 == 0o700


def kept(size: int) -> Entry:
    """Return an entry whose file has this size."""
    return Entry("x" * (size - len(STATE.to_json()) - 66), STATE)  # with the checksum, and newlines


def test_bounded_and_the_least_used_go_first(tmp_path):
    cache = Cache(tmp_path, most_bytes=10_000)
    for number in range(10):
        cache.store(f"key{number}", kept(1000))
        os.utime(tmp_path / f"key{number}.ptx", (number, number))
    assert cache.load("key0")
    cache.store("key10", kept(1000))
    left = {path.stem for path in tmp_path.iterdir()}
    assert left == {"key0", "key7", "key8", "key9", "key10"}


def test_half_written_files_are_thrown_away_too(tmp_path):
    cache = Cache(tmp_path, most_bytes=1000)
    (tmp_path / "killed.new").write_bytes(b"x" * 900)
    os.utime(tmp_path / "killed.new", (0, 0))
    cache.store("key", kept(200))
    assert [path.name for path in tmp_path.iterdir()] == ["key.ptx"]


def test_bounded_beside_what_is_no_file(tmp_path):
    """Entries that cannot be deleted do not prevent the deletion of others."""
    cache = Cache(tmp_path, most_bytes=1000)
    (tmp_path / "folder.ptx").mkdir()
    (tmp_path / "loop.ptx").symlink_to("loop.ptx")
    os.mkfifo(tmp_path / "fifo.new")
    for number in range(20):
        cache.store(f"key{number}", kept(200))
    assert len(list(tmp_path.glob("key*"))) <= 5


@pytest.mark.parametrize("deleting", [False, True], ids=["", "while it is emptied"])
def test_several_processes(nvcc, cache, deleting):
    program = (
        "from cudadrv import toolkit\n"
        "for round in range(10):\n"
        "    for number in range(5):\n"
        "        text = toolkit.compile(f'number {number}', arch='compute_75')\n"
        "        assert f'// number {number}' in text, text\n"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-W", "error", "-c", program]
    running = [subprocess.Popen(command, env=environ) for _ in range(4)]
    while deleting and any(process.poll() is None for process in running):
        for path in cache.glob("*"):
            path.unlink(missing_ok=True)
        time.sleep(0.01)
    assert [process.wait(PATIENCE) for process in running] == [0] * 4
    if not deleting:
        assert 5 <= len(nvcc.calls) <= 20
        assert len(list(cache.iterdir())) == 5


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"CUDADRV_CACHE_DIR": "/a/b", "XDG_CACHE_HOME": "/x"}, "/a/b"),
        ({"CUDADRV_CACHE_DIR": "", "XDG_CACHE_HOME": "/x"}, "/x/cudadrv"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/cudadrv"),
        ({"XDG_CACHE_HOME": "not/absolute"}, "~/.cache/cudadrv"),
        ({"XDG_CACHE_HOME": ""}, "~/.cache/cudadrv"),
        ({}, "~/.cache/cudadrv"),
        ({"CUDADRV_CACHE_DIR": "off"}, None),
    ],
)
def test_folder(environ, expected):
    assert cache_folder(environ) == (Path(expected).expanduser() if expected else None)


def test_relative_folder_is_of_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cache_folder({"CUDADRV_CACHE_DIR": "./off"}) == tmp_path / "off"


def test_no_home(monkeypatch):
    def home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", home)
    assert cache_folder({}) is None

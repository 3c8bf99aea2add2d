"""The markers: tests that need a GPU or the software driver, and allowed leaks and races."""

import pytest

GPU = """
@pytest.mark.cuda_gpu
def test_gpu(cuda_device): pass

@pytest.mark.cuda_gpu
def test_without_fixtures(): pass

@pytest.mark.cuda_software
def test_software(cuda_device): pass
"""
ALLOW = """
kept = []

@pytest.mark.cuda_allow({allowed})
def test(cuda_checked):
    kept.append(cu.DeviceBuffer(64))
    source, target = cu.LockedBuffer.zeros(64), cu.DeviceBuffer(64)
    with cu.Stream() as stream, cu.ordering("unchecked"):
        target.copy_from_async(source, stream)
        source[:] = 1
        stream.synchronize()
"""


def test_gpu_tests_are_skipped_once_with_a_reason(run):
    result = run(GPU, "-rs", "--strict-markers")
    result.assert_outcomes(passed=3, skipped=2)
    result.stdout.fnmatch_lines(["SKIPPED*needs a real GPU*(--cuda-driver=cuda)"])


@pytest.mark.parametrize("how", ["option", "environment"])
def test_a_missing_gpu_can_be_a_failure(run, monkeypatch, how):
    options = ["--cuda-driver=software"]
    if how == "option":
        options.append("--cuda-require-gpu")
    else:
        monkeypatch.setenv("CUDADRV_REQUIRE_GPU", "1")
    result = run(GPU, *options)
    result.assert_outcomes(passed=3, errors=2)
    result.stdout.fnmatch_lines(["cuda_gpu: needs a real GPU*forbidden*"])


def test_who_requires_a_gpu_gets_the_real_driver(run):
    """--cuda-require-gpu overrides the project's `cuda_driver`.

    Otherwise every test would pass on the software driver.
    """
    ini = "cuda_driver = software"
    result = run("import os\ndef test(): print(os.environ['CUDADRV_DRIVER'])", "-s",
                 "--cuda-require-gpu", ini=ini)  # fmt: skip
    result.stdout.fnmatch_lines(["cudadrv: driver cuda (on a real one, leaked buffers*", "*cuda"])


def test_the_real_driver_has_no_checks_inside_kernels(run):
    options = ("--cuda-driver=cuda", "--collect-only")
    header = "cudadrv: cuda_checks=race is for the software driver only"
    run(GPU, *options, ini="cuda_checks = race").stdout.fnmatch_lines([header])
    for ini in ("cuda_checks = off", ""):
        run(GPU, *options, ini=ini).stdout.no_fnmatch_line("*cuda_checks*")


def test_the_real_driver_has_no_schedules(run):
    result = run(GPU, "--cuda-driver=cuda", "--collect-only", "-q")
    result.stdout.fnmatch_lines(["*::test_gpu?cuda?", "*::test_without_fixtures", "*?cuda?"])


@pytest.mark.parametrize(
    ("allowed", "outcomes"),
    [
        ('"leaks", "races"', {"passed": 1}),
        ('"races"', {"passed": 1, "errors": 1}),
        ('"leaks"', {"failed": 1}),
    ],
)
def test_what_is_allowed_does_not_fail(run, allowed, outcomes):
    result = run(ALLOW.format(allowed=allowed), "--cuda-schedule=eager")
    result.assert_outcomes(**outcomes)


@pytest.mark.parametrize("allowed", ["", '"leak"', "races=True"])
def test_other_words_are_refused(run, allowed):
    result = run(ALLOW.format(allowed=allowed))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ['*::test*cuda_allow takes "leaks", "races", "hazards", "unfinished", *']
    )


def test_a_race_can_be_an_expected_failure(run):
    text = ALLOW.format(allowed='"leaks"').replace("@", "@pytest.mark.xfail(strict=True)\n@", 1)
    run(text).assert_outcomes(xfailed=3)


def test_a_test_can_choose_its_schedules(run):
    text = """
@pytest.mark.parametrize("cuda_schedule", ["lazy"], indirect=True)
def test(cuda_checked, cuda_schedule):
    assert cuda_schedule == "lazy"
"""
    run(text, "--cuda-schedule=eager,random").assert_outcomes(passed=1)


def test_fixtures_that_are_asked_for_while_a_test_runs(run):
    text = """
def test(request):
    assert request.getfixturevalue("cuda_checked").ordinal == 0
    assert request.getfixturevalue("cuda_schedule") == "random"
"""
    run(text, "--cuda-schedule=random", "--cuda-driver=software").assert_outcomes(passed=1)


HAZARD = """
TEXT = '''.version 8.0
.target sm_80
.address_size 64
.visible .entry exchange(.param .u64 out)
{
    .reg .b32 %r<4>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd1, %rd1, %rd2;
    st.global.u32 [%rd1], %r1;
    ld.global.u32 %r2, [%rd1+4];
    ret;
}
'''

MARKS
def test(cuda_checked):
    out = cu.DeviceBuffer.zeros(65, "u4", name="out")
    with cu.Stream() as stream, cu.Module(TEXT) as module:
        module["exchange"].launch(1, 64, out, stream=stream)
        stream.synchronize()
"""


@pytest.mark.parametrize(
    ("marks", "options", "outcomes"),
    [
        ("", [], {"passed": 1}),
        ("", ["--cuda-checks=race"], {"failed": 1}),
        ('@pytest.mark.cuda_checks("race")', [], {"failed": 1}),
        ("", ["--cuda-checks=sync"], {"passed": 1}),
        ("", ["--cuda-checks=sync+race"], {"failed": 1}),
        ('@pytest.mark.cuda_checks("off")', ["--cuda-checks=all"], {"passed": 1}),
        ('@pytest.mark.cuda_allow("hazards")', ["--cuda-checks=race"], {"passed": 1}),
        ('@pytest.mark.cuda_allow("races")', ["--cuda-checks=race"], {"failed": 1}),
        ("@pytest.mark.xfail(strict=True)", ["--cuda-checks=race"], {"xfailed": 1}),
    ],
)
def test_checks_inside_kernels(run, marks, options, outcomes):
    result = run(HAZARD.replace("MARKS", marks), "--cuda-schedule=eager", *options)
    result.assert_outcomes(**outcomes)
    if outcomes == {"failed": 1}:
        memory = "DeviceBuffer 'out' (made at *): *"
        result.stdout.fnmatch_lines([f"race in kernel 'exchange' on * of {memory}"])
    checks = [option for option in options if option.startswith("--cuda-checks")]
    if outcomes == {"failed": 1} and checks:
        result.stdout.fnmatch_lines([f"again: pytest * {checks[0]}"])


def test_checks_by_the_ini_file(run):
    result = run(HAZARD.replace("MARKS", ""), "--cuda-schedule=eager", ini="cuda_checks = race")
    result.assert_outcomes(failed=1)


def test_other_checks_are_refused(run):
    result = run(HAZARD.replace("MARKS", ""), "--cuda-checks=memory")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--cuda-checks*memory*off, all, or some of race+init+sync*"])
    result = run(HAZARD.replace("MARKS", "@pytest.mark.cuda_checks(1)"))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*::test*: cuda_checks takes one text (off, all, or some of race+init+sync), not (1,)"]
    )

"""Runs one module of unittest tests in this process, which must be new."""

import ctypes
import faulthandler
import io
import json
import os
import unittest
import warnings

import kernel_hazards
import pytest


class Outcomes(unittest.TestResult):
    """Writes the outcome and report of each test to a file: when it starts, and when it ends.

    After a test that loses the device, no more tests run.
    """

    def __init__(self, package, driver, file):
        super().__init__()
        self.buffer = True  # the output of a test is part of its report
        self.package, self.driver, self.file = package, driver, file
        self.outcomes = {}

    def name_of(self, test):
        return test.id().removeprefix(self.package + ".")

    def write(self, test, outcome, report, hazards=()):
        self.file.write(json.dumps([self.name_of(test), outcome, report, hazards]) + "\n")
        self.file.flush()

    def startTest(self, test):
        super().startTest(test)
        self.outcomes[self.name_of(test)] = ["passes", ""]
        self.write(test, "started", "")

    def stopTest(self, test):
        super().stopTest(test)
        self.write(test, *self.outcomes[self.name_of(test)], kernel_hazards.found())
        if self.driver.cudadrvSoftFaultText():
            self.stop()

    def note(self, test, outcome, report):
        name = self.name_of(test)
        if name not in self.outcomes:  # the failure of a class or module, none of whose tests runs
            self.write(test, outcome, report)
            return
        _, before = self.outcomes[name]
        self.outcomes[name] = [outcome, before + report]

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.note(test, "skips", f"skipped: {reason}\n")

    def addError(self, test, error):
        if issubclass(error[0], pytest.skip.Exception):  # unittest does not know pytest's skips
            self.addSkip(test, str(error[1]))
            return
        super().addError(test, error)
        self.note(test, "fails", self.errors[-1][1])

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.note(test, "fails", self.failures[-1][1])

    def addSubTest(self, test, subtest, error):
        before = len(self.errors), len(self.failures)
        super().addSubTest(test, subtest, error)
        for _, report in self.errors[before[0] :] + self.failures[before[1] :]:
            self.note(test, "fails", report)

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.note(test, "fails", "this is expected to fail, and it passed\n")


def remaining(tests, package, done):
    """Yield the tests that have not run yet."""
    for test in tests:
        if isinstance(test, unittest.TestSuite):
            yield from remaining(test, package, done)
        elif test.id().removeprefix(package + ".") not in done:
            yield test


def run(package, module, done, settings, file, printed):
    """Run the tests of a module that are not in `done`, and write their outcomes to a file.

    Each line is [TEST, OUTCOME, REPORT, HAZARDS] in JSON, where OUTCOME is started, passes, fails
    or skips, and HAZARDS is a list of texts.
    Other output of the tests goes to the file `printed`.
    """
    with printed.open("w") as output:
        for standard in (1, 2):
            os.dup2(output.fileno(), standard)
    os.environ["CUDADRV_SOFTWARE"] = settings
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # a test skips if this variable is set
    faulthandler.enable()
    warnings.simplefilter("ignore")
    driver = ctypes.CDLL("libcuda.so.1")
    driver.cudadrvSoftFaultText.restype = ctypes.c_char_p
    with file.open("a", encoding="utf-8") as lines:
        # A module that cannot be imported counts as a failing test. It may also skip itself.
        try:
            tests = unittest.defaultTestLoader.loadTestsFromName(f"{package}.{module}")
        except pytest.skip.Exception as skipped:
            lines.write(json.dumps([module, "skips", f"skipped: {skipped}\n", []]) + "\n")
            return
        suite = unittest.TestSuite(remaining(tests, package, done))
        result = Outcomes(package, driver, lines)
        runner = unittest.TextTestRunner(stream=io.StringIO(), resultclass=lambda *_, **__: result)
        runner.run(suite)

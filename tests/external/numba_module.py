"""Runs one module of numba-cuda's driver tests in this process, which must be a new one."""

import faulthandler
import io
import json
import os
import unittest
import warnings

import pytest

PACKAGE = "numba.cuda.tests.cudadrv"


class Outcomes(unittest.TestResult):
    """The outcome and the report of each test, by its name in PACKAGE."""

    def __init__(self):
        super().__init__()
        self.buffer = True  # what a test prints is part of its report
        self.outcomes = {}

    def startTest(self, test):
        super().startTest(test)
        self.outcomes[name_of(test)] = ["passes", ""]

    def note(self, test, outcome, report):
        _, before = self.outcomes.get(name_of(test), ("", ""))
        self.outcomes[name_of(test)] = [outcome, before + report]

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.note(test, "skips", f"skipped: {reason}\n")

    def addError(self, test, error):
        if issubclass(error[0], pytest.skip.Exception):  # unittest does not know it
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
        self.note(test, "fails", "numba expects this to fail, and it passed\n")


def name_of(test):
    return test.id().removeprefix(PACKAGE + ".")


def run(module, settings, file, printed):
    """Write {test: [outcome, report]} as JSON, where outcome is passes, fails or skips.

    What else the tests print goes to the file `printed`.
    """
    with printed.open("w") as output:
        for standard in (1, 2):
            os.dup2(output.fileno(), standard)
    os.environ["CUDADRV_SOFTWARE"] = settings
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # a test of it skips where it is set
    faulthandler.enable()
    warnings.simplefilter("ignore")
    result = Outcomes()
    # A module that cannot be imported becomes a test that fails.
    tests = unittest.defaultTestLoader.loadTestsFromName(f"{PACKAGE}.{module}")
    unittest.TextTestRunner(stream=io.StringIO(), resultclass=lambda *_, **__: result).run(tests)
    file.write_text(json.dumps(result.outcomes), encoding="utf-8")

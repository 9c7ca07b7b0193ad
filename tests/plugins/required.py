"""A pytest plugin: with TINYLLM_CI=1 a skip is a failure.

Elsewhere a test may skip for want of a browser, a data file or an engine, and says
so. In CI all of them are there, so a skip means that something silently went untested.
llama-cpp-python alone is excused: it compiles for a quarter of an hour.
"""

from __future__ import annotations

import os

import pytest

EXCUSED = ("llama-cpp-python", "llama_cpp")


def reason_of(report):
    """Why a report was skipped, as pytest words it."""
    place = report.longrepr
    return place[2] if isinstance(place, tuple) else str(place)


def refuse(report):
    """Turn a skipped report into a failed one, unless its reason is excused."""
    reason = reason_of(report)
    if os.environ.get("TINYLLM_CI") != "1" or any(e in reason for e in EXCUSED):
        return
    report.outcome = "failed"
    report.longrepr = f"TINYLLM_CI=1, and this was not run. {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        refuse(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    if report.skipped:
        refuse(report)
    return report

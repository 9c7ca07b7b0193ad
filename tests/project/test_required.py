"""In CI a skip is a failure; elsewhere it is a skip."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SKIPS = """
import pytest
def test_browser():
    pytest.skip("no chromium")
def test_engine():
    pytest.skip("llama-cpp-python is not installed")
@pytest.mark.xfail(reason="known")
def test_known():
    assert False
"""
SKIPS_ITSELF = "import pytest\npytest.importorskip('no_such_engine')"


@pytest.fixture
def run(pytester, monkeypatch):
    """Run two test files with the plugin, in a child process."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makepyfile(test_skips=SKIPS, test_skips_itself=SKIPS_ITSELF)
    options = ["-p", "tests.plugins.required", "--continue-on-collection-errors"]
    return lambda: pytester.runpytest_subprocess(*options)


def test_outside_ci_a_skip_is_a_skip(run, monkeypatch):
    monkeypatch.delenv("TINYLLM_CI", raising=False)
    run().assert_outcomes(skipped=3, xfailed=1)


def test_in_ci_a_skip_is_a_failure_but_llama_cpp_is_excused(run, monkeypatch):
    monkeypatch.setenv("TINYLLM_CI", "1")
    result = run()
    result.assert_outcomes(failed=1, errors=1, skipped=1, xfailed=1)
    result.stdout.fnmatch_lines(["*TINYLLM_CI=1, and this was not run.*no chromium*"])

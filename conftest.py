"""What every test of the project runs under; the plugins are in tests/plugins."""

import os

from hypothesis import settings

pytest_plugins = [
    "tests.plugins.nbval_gaps",
    "tests.plugins.required",
    "tests.plugins.order",
    "pytester",
]

# pytest-socket keeps the tests themselves on this machine (see pyproject.toml). Their
# children (kernels, JupyterLab, the command line) get a proxy that nobody runs.
NOWHERE = "http://127.0.0.1:9"
for name in ("http_proxy", "https_proxy", "all_proxy"):
    os.environ[name] = os.environ[name.upper()] = NOWHERE
os.environ["no_proxy"] = os.environ["NO_PROXY"] = "127.0.0.1,localhost,::1"
# One kernel and one test at a time are faster on one BLAS thread than on all of them.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# A deadline is a timed assertion, and fails on a busy machine. CI tries the same
# examples each time, so that it fails for what was changed; elsewhere they are new.
same = os.environ.get("TINYLLM_CI") == "1"
settings.register_profile("tinyllm", deadline=None, derandomize=same)
settings.load_profile("tinyllm")

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

# Deadlines are off: a deadline is a timed assertion, and fails on a busy machine. Seeds
# are fixed, so that a failure comes from a change; chance is for whoever asks for it:
#   quick    fewer examples (the default)
#   full     all examples (CI): pytest --hypothesis-profile=full
#   random   all examples, new ones each time: pytest --hypothesis-profile=random
settings.register_profile("quick", deadline=None, derandomize=True, max_examples=40)
settings.register_profile("full", deadline=None, derandomize=True)
settings.register_profile("random", deadline=None, derandomize=False)
settings.load_profile("full" if os.environ.get("TINYLLM_CI") == "1" else "quick")


def pytest_ignore_collect(collection_path, config):
    """Leave the judges to `make judges`: they run where somebody names them."""
    named = any("judges" in argument for argument in config.args)
    return True if collection_path.name == "judges" and not named else None

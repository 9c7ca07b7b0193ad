"""Fixtures for tests in a real JupyterLab in a real Chromium.

    def test_something(open_notebook):
        chapter = open_notebook(NOTEBOOKS / "00_start_here.ipynb")   # a copy of it
        chapter.run_all()
        chapter.press(chapter.slider(0), "ArrowRight", times=3)
        expect(chapter.notebook.locator(".legal-count")).to_have_text("3 of 512")

`open_notebook(path)` returns a NotebookPage (see lab.py). Each test has a page of its
own; when it ends, the test fails if the page asked for anything beyond 127.0.0.1 or
raised a JavaScript error. Chromium is taken from $CHROMIUM or /usr/bin/chromium; where
there is none the tests skip (in CI that is a failure).
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

import pytest

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
INSIDE = ("data", "blob", "about")


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.timeout(1800))


def leaves_the_machine(address):
    """Whether a request to `address` would go beyond this machine."""
    parts = urlsplit(address)
    return parts.scheme not in INSIDE and parts.hostname != "127.0.0.1"


@pytest.fixture(scope="module")
def chromium():
    """A running Chromium."""
    playwright = pytest.importorskip("playwright.sync_api")
    if not Path(CHROMIUM).exists():
        pytest.skip(f"no browser at {CHROMIUM}: install chromium or set CHROMIUM")
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def lab(chromium, tmp_path_factory):
    """(address, folder) of a JupyterLab that shows a folder of its own."""
    from tests.browser.lab import jupyterlab

    root = tmp_path_factory.mktemp("root")
    with jupyterlab(root, tmp_path_factory.mktemp("home")) as address:
        yield address, root


@pytest.fixture
def page(chromium):
    """A page that may ask nothing of the network and must raise no error."""
    context = chromium.new_context(viewport={"width": 1300, "height": 1500})
    outside, errors = [], []
    page = context.new_page()
    context.on("request", lambda r: outside.append(r.url))
    page.on("websocket", lambda w: outside.append(w.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    assert [url for url in outside if leaves_the_machine(url)] == []
    assert errors == []


@pytest.fixture
def open_notebook(lab, page):
    """Open a copy of a notebook in JupyterLab, kernel idle: a NotebookPage."""
    from tests.browser.lab import NotebookPage, copied

    address, root = lab
    return lambda path: NotebookPage(page, address, copied(path, root))


@pytest.fixture
def chapter(request, open_notebook):
    """The test module's CHAPTER after all its cells have run, without an error."""
    page = open_notebook(request.module.CHAPTER)
    page.run_all()
    assert page.bad_outputs.all_inner_texts() == []
    return page

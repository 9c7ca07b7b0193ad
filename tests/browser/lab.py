"""A real JupyterLab in throw-away folders, and a notebook opened in it.

What was learnt on the way: cells off the screen are not in the page unless
windowingMode is "none"; the toolbar's idle circle says idle too early and a Run All
given then is lost, the status bar tells the truth; sliders move by keyboard once their
handle has the focus.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import nbformat
from playwright.sync_api import expect

# Ceilings against a hang, far above what anything takes on a machine that is busy with
# other work: each wait ends as soon as what it waits for is there.
START_SECONDS = 600
expect.set_options(timeout=600_000)  # milliseconds
SETTINGS = {
    "notebook-extension/tracker": {"windowingMode": "none"},
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}
OPTIONS = [
    "--no-browser",
    "--allow-root",
    "--ServerApp.ip=127.0.0.1",
    "--ServerApp.port_retries=0",
    "--IdentityProvider.token=",
    "--PasswordIdentityProvider.hashed_password=",
    "--LabApp.extension_manager=readonly",
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    "--LabApp.news_url=",
]
BAD_OUTPUT = ", ".join(
    f"[data-mime-type='application/vnd.jupyter.{kind}']" for kind in ("error", "stderr")
)


def free_port():
    """A port of this machine on which nobody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def write_settings(folder):
    """JupyterLab's user settings, in `folder`."""
    for name, values in SETTINGS.items():
        path = folder / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))


def environment(home):
    """The environment of a server whose every setting lies below `home`."""
    folders = {
        "JUPYTER_CONFIG_DIR": home / "config",
        "JUPYTER_DATA_DIR": home / "data",
        "JUPYTER_RUNTIME_DIR": home / "run",
        "JUPYTERLAB_SETTINGS_DIR": home / "settings",
        "JUPYTERLAB_WORKSPACES_DIR": home / "workspaces",
        "IPYTHONDIR": home / "ipython",
    }
    return dict(os.environ, JUPYTER_PREFER_ENV_PATH="1",
                **{k: str(v) for k, v in folders.items()})  # fmt: skip


class Log:
    """The lines a server writes, read by a thread so that its pipe never fills."""

    def __init__(self, stream):
        self.lines = []
        self.ready = threading.Event()
        threading.Thread(target=self.follow, args=(stream,), daemon=True).start()

    def follow(self, stream):
        for line in stream:
            self.lines.append(line)
            if "is running at" in line:
                self.ready.set()
        self.ready.set()  # the end of the log: it stopped


@contextlib.contextmanager
def jupyterlab(root, home):
    """The address of a JupyterLab that shows the folder `root`."""
    write_settings(home / "settings")
    port = free_port()
    command = [sys.executable, "-m", "jupyterlab", *OPTIONS,
               f"--ServerApp.root_dir={root}", f"--ServerApp.port={port}"]  # fmt: skip
    with subprocess.Popen(
        command, env=environment(home), cwd=root, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as server:  # fmt: skip
        log = Log(server.stdout)
        try:
            if not log.ready.wait(START_SECONDS) or server.poll() is not None:
                raise RuntimeError("JupyterLab did not start:\n" + "".join(log.lines))
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()


class NotebookPage:
    """A notebook open in a browser: run it, find its parts, move its sliders.

    .page is Playwright's page, .notebook the locator of the notebook's panel; both may
    be used directly. Every wait polls; nothing sleeps.
    """

    def __init__(self, page, address, path):
        self.page = page
        self.code_cells = sum(
            cell.cell_type == "code" and bool(cell.source.strip())
            for cell in nbformat.read(path, as_version=4).cells
        )
        page.set_default_timeout(600_000)
        page.goto(f"{address}/lab/tree/{path.name}?reset")
        self.notebook = page.locator(".jp-NotebookPanel:visible .jp-Notebook")
        self.wait_until_idle()

    def wait_until_idle(self):
        """Wait until the kernel is connected and has nothing to do."""
        bar = self.page.locator("#jp-main-statusbar")
        expect(bar).to_contain_text("Python 3 (ipykernel) | Idle")

    def run_all(self):
        """Run all cells by the menu, as a reader would, until the last or an error."""
        self.page.get_by_role("menuitem", name="Run", exact=True).click()
        self.page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        last = self.notebook.locator(
            ".jp-InputPrompt", has_text=f"[{self.code_cells}]:"
        )
        expect(last.or_(self.bad_outputs).first).to_be_visible()
        self.wait_until_idle()

    @property
    def bad_outputs(self):
        """Locator of the outputs that are errors or were written to stderr."""
        return self.notebook.locator(BAD_OUTPUT)

    def slider(self, number=0):
        """Locator of the handle of a slider, by its order in the notebook."""
        return self.notebook.locator(".widget-slider .noUi-handle").nth(number)

    def press(self, locator, key, times=1):
        """Give `locator` the focus and press a key."""
        locator.focus()
        for _ in range(times):
            self.page.keyboard.press(key)


def copied(path, root):
    """A copy of a notebook, and of the data beside it, in the folder of the server."""
    if (data := path.parent / "data").is_dir():
        shutil.copytree(data, root / "data", dirs_exist_ok=True)
    return Path(shutil.copy(path, root))

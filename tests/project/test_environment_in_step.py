"""environment.yml and constraints.txt agree with pyproject.toml."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
CONDA_NAMES = {"matplotlib": "matplotlib-base"}  # conda's matplotlib brings Qt along


@pytest.fixture(scope="module")
def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def environment():
    return yaml.safe_load((ROOT / "environment.yml").read_text())


def test_environment_yml_has_the_bounds_of_the_core_notebooks_and_http_backend(
    project, environment
):
    extras = project["optional-dependencies"]
    asked = project["dependencies"] + extras["notebooks"] + extras["http"]
    wanted = {}
    for requirement in map(Requirement, asked):
        name = CONDA_NAMES.get(requirement.name, requirement.name)
        wanted[name] = str(requirement.specifier)
    plain = [d for d in environment["dependencies"] if isinstance(d, str)]
    plain = [d for d in plain if d != "pip" and not d.startswith("python=")]
    got = {(r := Requirement(d)).name: str(r.specifier) for d in plain}
    assert got == wanted


def test_environment_yml_is_what_conda_and_repo2docker_read_and_brings_nbval(
    project, environment
):
    assert environment["channels"] == ["conda-forge"]
    *plain, last = environment["dependencies"]
    assert last == {"pip": ["-e .[test]"]}
    assert plain[-1] == "pip"
    python = next(d for d in plain if d.startswith("python="))
    assert re.fullmatch(r"python=3\.1[1-9]", python)


def pins():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_constraints_are_exact_versions_without_addresses():
    assert [
        p for p in pins() if not re.fullmatch(r"[a-z0-9._-]+==[0-9][\w.]*", p)
    ] == []


def test_every_requirement_is_pinned_within_its_bounds(project):
    have = dict(p.split("==") for p in pins())
    extras = project["optional-dependencies"].values()
    for text in [*project["dependencies"], *(r for extra in extras for r in extra)]:
        requirement = Requirement(text)
        version = have[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), text


def installed(name):
    """The metadata of a distribution, or None where it is not installed."""
    try:
        return metadata(name)
    except PackageNotFoundError:
        return None


def test_what_is_pinned_installs_on_the_oldest_python():
    refused = []
    for name, version in (pin.split("==") for pin in pins()):
        about = installed(name)
        if about is not None and about["Version"].split("+")[0] == version:
            wanted = SpecifierSet(about.get("Requires-Python", ""))
            refused += [] if wanted.contains("3.11.0") else [f"{name} {wanted}"]
    assert refused == []

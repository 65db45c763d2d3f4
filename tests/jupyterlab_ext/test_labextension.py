"""The panel travels built: what is committed is what its sources build, and installing needs no node.js."""

import importlib.util
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOM = ROOT / "jupyterlab_ext"
BUILT = ROOM / "labextension"
BUILD = ROOM / "ui" / "build.py"


@pytest.mark.timeout(600)
def test_what_is_committed_is_what_the_sources_build_and_their_tests_pass():
    """Needs node.js, which `make test` installs, and the npm registry; never skipped."""
    done = subprocess.run([sys.executable, str(BUILD), "--check"], capture_output=True, text=True, timeout=590)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_comparison_can_fail(tmp_path):
    spec = importlib.util.spec_from_file_location("panel_build", BUILD)
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        (folder / "static").mkdir(parents=True)
        (folder / "static" / "same.js").write_text("same")
        (folder / "package.json").write_text(folder.name)
    (other / "static" / "stale.js").write_text("x")
    assert build.differences(one, other) == ["package.json", "static/stale.js"]
    assert build.differences(one, one) == []


def test_the_built_panel_is_small_and_names_no_host():
    files = [file for file in BUILT.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 150_000
    lock = (ROOM / "ui" / "yarn.lock").read_text("utf-8")
    assert "://" not in lock, "a lock file with addresses would tie the build to one registry"


def test_the_sources_use_no_colour_but_the_themes():
    style = "".join(file.read_text("utf-8") for file in (ROOM / "ui" / "style").glob("*.css"))
    assert "var(--jp-" in style
    assert "#" not in style
    assert "rgb" not in style


def test_installing_lays_panel_server_extension_and_kernel_where_jupyter_looks():
    data = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["data-files"]
    laid = {
        f"{target}/{file.relative_to(ROOT).name}"
        for target, patterns in data.items()
        for pattern in patterns
        for file in ROOT.glob(pattern)
    }
    name = json.loads((BUILT / "package.json").read_text())["name"]
    load = json.loads((BUILT / "package.json").read_text())["jupyterlab"]["_build"]["load"]
    for wanted in (
        f"share/jupyter/labextensions/{name}/package.json",
        f"share/jupyter/labextensions/{name}/install.json",
        f"share/jupyter/labextensions/{name}/{load}",
        "etc/jupyter/jupyter_server_config.d/computemesh.json",
        "share/jupyter/kernels/computemesh/kernel.json",
        "share/jupyter/kernels/computemesh/logo-svg.svg",
    ):
        assert wanted in laid


def test_the_versions_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert json.loads((ROOM / "ui" / "package.json").read_text())["version"] == project["version"]

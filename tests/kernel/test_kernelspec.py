"""The kernel "Python (ComputeMesh)" shows its own picture, and the installed spec is the one that travels."""

import json
import struct
from pathlib import Path

import pytest

from computemesh.kernel import kernel_install

SPEC = Path(kernel_install.__file__).with_name("kernelspec")


def test_the_installed_spec_has_the_pictures(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_install, "_kernels_folder", lambda user: tmp_path)
    folder = kernel_install.install_kernelspec(user=True, executable="/usr/bin/some-python")
    spec = json.loads((folder / "kernel.json").read_text())
    assert spec["argv"][0] == "/usr/bin/some-python"
    for logo in kernel_install.LOGOS:
        assert (folder / logo).read_bytes() == (SPEC / logo).read_bytes()


def test_both_ways_of_installing_start_the_same_kernel():
    travelling = json.loads((SPEC / "kernel.json").read_text())
    written = kernel_install.spec_for("python")
    assert written == travelling


@pytest.mark.parametrize("size", [32, 64])
def test_a_picture_is_as_large_as_its_name_says(size):
    data = (SPEC / f"logo-{size}x{size}.png").read_bytes()
    assert data.startswith(b"\x89PNG")
    assert struct.unpack(">II", data[16:24]) == (size, size)

"""Installs the kernelspec with this interpreter's path, for a Jupyter that runs in another environment.

Installing the package puts the same kernelspec (``kernelspec/kernel.json``) into its own environment.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from computemesh.errors import BadConfiguration

NAME = "computemesh"
LOGOS = ("logo-32x32.png", "logo-64x64.png", "logo-svg.svg")
"""What Jupyter's launcher shows; beside ``kernel.json`` in ``kernelspec/``."""


def spec_for(executable: str) -> dict[str, object]:
    """Return the kernelspec that starts `executable`."""
    return {
        "argv": [executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", "--ext=computemesh"],
        "display_name": "Python (ComputeMesh)",
        "language": "python",
        "interrupt_mode": "signal",
        "metadata": {"debugger": True, "supported_encryption": "curve"},
    }


def install_kernelspec(*, user: bool, executable: str = sys.executable) -> Path:
    """Write the kernelspec where Jupyter looks and return the folder.

    Raises:
        BadConfiguration: the folder cannot be written; says which and what else to try.
    """
    folder = _kernels_folder(user) / NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "kernel.json").write_text(json.dumps(spec_for(executable), indent=2) + "\n", "utf-8")
        for logo in LOGOS:
            shutil.copyfile(Path(__file__).with_name("kernelspec") / logo, folder / logo)
    except OSError as error:
        other = "--sys-prefix" if user else "--user"
        raise BadConfiguration(f"{folder} cannot be written ({error.strerror}): try {other}") from None
    return folder


def _kernels_folder(user: bool) -> Path:
    if not user:
        return Path(sys.prefix) / "share" / "jupyter" / "kernels"
    try:
        from jupyter_core.paths import jupyter_data_dir
    except ImportError:
        raise BadConfiguration(
            "--user needs Jupyter in this environment: pip install 'computemesh[notebook]'"
        ) from None
    return Path(jupyter_data_dir()) / "kernels"

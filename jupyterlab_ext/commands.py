"""``mesh lab``: JupyterLab with the mesh in it."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import click


@click.group()
def commands() -> None:
    """JupyterLab's commands."""


@commands.command(context_settings={"ignore_unknown_options": True})
@click.option("--home", type=click.Path(file_okay=False, path_type=Path), help="Which mesh, when there are several.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[NOTEBOOK] [JUPYTERLAB OPTIONS]")
def lab(home: Path | None, arguments: tuple[str, ...]) -> None:
    """Open JupyterLab on this mesh: new notebooks with the kernel "Python (ComputeMesh)" run their cells on it."""
    from computemesh.errors import BadConfiguration
    from computemesh.identity import HOME_VARIABLE, find_identity, home_folder

    if find_spec("jupyterlab") is None:
        raise BadConfiguration("JupyterLab is not installed here: pip install 'computemesh[notebook]'")
    folder = home_folder(home)
    identity = find_identity(folder)
    click.echo(f"JupyterLab on the mesh at {identity.driver}, as {identity.name}")
    sys.stdout.flush()
    os.environ[HOME_VARIABLE] = str(folder)
    os.execv(sys.executable, [sys.executable, "-m", "jupyterlab", *arguments])  # noqa: S606 - our own interpreter

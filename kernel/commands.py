"""This room's commands: ``mesh kernelspec``."""

from __future__ import annotations

import click


@click.group()
def commands() -> None:
    """Commands of the notebook's side."""


@commands.group()
def kernelspec() -> None:
    """The Jupyter kernel "Python (ComputeMesh)"."""


@kernelspec.command()
@click.option("--user", "where", flag_value="user", help="For this user, whatever environment Jupyter runs in.")
@click.option(
    "--sys-prefix", "where", flag_value="sys-prefix", default="sys-prefix", help="For this environment (default)."
)
def install(where: str) -> None:
    """Make "Python (ComputeMesh)" appear among Jupyter's kernels, running this Python."""
    from .kernel_install import install_kernelspec

    folder = install_kernelspec(user=where == "user")
    click.echo(f'Installed "Python (ComputeMesh)" in {folder}')

"""The ``mesh`` command: gathers the commands that the rooms bring, and turns our errors into plain messages."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from . import __version__
from .errors import ComputeMeshError
from .rooms import command_groups


class MeshGroup(click.Group):
    """A group that prints a `ComputeMeshError` as one message, without a traceback."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        """Run as click does, with our errors shown plainly; exit status 1."""
        try:
            return super().main(args, *rest, **extra)
        except ComputeMeshError as error:
            click.secho("Error: ", fg="red", nl=False, err=True)
            click.echo(str(error), err=True)
            sys.exit(1)


class _Gathered(MeshGroup):
    """Looks the rooms' commands up when they are first asked for."""

    def _gather(self) -> None:
        if not self.commands:
            for group in command_groups():
                for name, command in group.commands.items():
                    self.add_command(command, name)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all commands, by name."""
        self._gather()
        return super().list_commands(ctx)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Return the command `name`, whichever room brings it."""
        self._gather()
        return super().get_command(ctx, name)


@click.group(cls=_Gathered, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mesh")
def mesh() -> None:
    """ComputeMesh: an organisation's idle machines as one compute pool, used from the notebook.

    \b
    On the driver's machine:      mesh up
    On each machine that lends:   mesh join HOST --token … --ca …
    Where you work:               mesh login HOST --token … --ca …, then `import computemesh as mesh`
    """


def main() -> None:
    """Run the ``mesh`` command."""
    mesh(prog_name="mesh")

"""This room's commands: ``mesh kernelspec``."""

from __future__ import annotations

from pathlib import Path

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


@commands.command()
@click.argument(
    "notebooks",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="NOTEBOOK…",
)
@click.option(
    "--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder of the executed notebooks."
)
@click.option(
    "-p", "--parameter", "given", nargs=2, multiple=True, metavar="NAME VALUE", help="A parameter of them all."
)
@click.option(
    "--parameters",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="YAML file of parameters.",
)
@click.option(
    "--max-parallel", type=click.IntRange(min=1), help="Most notebooks at a time.  [default: as the mesh has room]"
)
@click.option("--retry", type=click.IntRange(min=0), default=0, help="Run a notebook that failed again, so many times.")
@click.option(
    "--checkpoint",
    is_flag=True,
    help="Keep each kernel's state after its cells: a notebook whose node dies goes on where it was.",
)
@click.option("--resume", is_flag=True, help="Leave out what an earlier batch in the same folder has done.")
@click.option("--timeout", type=click.IntRange(min=1), metavar="SECONDS", help="Longest that a cell may take.")
@click.option("--kernel", metavar="NAME", help="Kernel to run them with.  [default: each notebook's own]")
@click.option("--home", type=click.Path(file_okay=False, path_type=Path), help="Which mesh, when there are several.")
def batch(
    notebooks: tuple[Path, ...],
    out: Path,
    given: tuple[tuple[str, str], ...],
    file: Path | None,
    max_parallel: int | None,
    retry: int,
    checkpoint: bool,
    resume: bool,
    timeout: int | None,
    kernel: str | None,
    home: Path | None,
) -> None:
    """Run many notebooks on the mesh.

    Each is executed as papermill does, on a node of its own choosing, and saved after every cell. The folder gets a
    summary, index.html and summary.json. Exits with 0 when all are done, 1 when some failed, 130 when interrupted.

    \b
    mesh batch *.ipynb --out done -p year 2026
    mesh batch *.ipynb --out done -p year 2026 --checkpoint --resume   # go on after a crash or Ctrl-C
    """
    import os

    from computemesh.identity import HOME_VARIABLE, home_folder

    from .batch import MOST_AT_ONCE, Wishes
    from .batch_run import parameters_of, run_batch

    if home is not None:
        os.environ[HOME_VARIABLE] = str(home_folder(home))
    wishes = Wishes(
        parameters=parameters_of(given, file),
        kernel=kernel,
        timeout=timeout,
        at_once=max_parallel or MOST_AT_ONCE,
        retries=retry,
        checkpoint=checkpoint,
    )
    raise SystemExit(run_batch(notebooks, out, wishes, resume))

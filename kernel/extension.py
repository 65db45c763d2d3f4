"""``%load_ext computemesh``: the cell magic, and Dask collections that compute on the mesh."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand, output_can_be_silenced

from computemesh.errors import BadRequirement, ComputeMeshError

from .when_imported import when_imported


class LazyMeshClient:
    """Stands in Dask's configuration as the scheduler, and connects when something is first computed.

    Dask asks a configured scheduler for its `get`; by giving the mesh client's own bound method, `persist` too finds
    the cluster. Dask recognises clients by their class's name.
    """

    asynchronous = False

    @property
    def get(self) -> Callable[..., Any]:
        """The mesh's `get`, or local threads' where there is no mesh."""
        from .connection import known

        mesh = known()
        if mesh is None or mesh.local:
            import dask.threaded

            local: Callable[..., Any] = dask.threaded.get
            return local
        found: Callable[..., Any] = mesh.client.get
        return found

    def __repr__(self) -> str:
        return "<the mesh, connected on first use>"


@magics_class
class MeshMagics(Magics):
    """The notebook's magics."""

    @line_magic("mesh")
    def status(self, line: str) -> Any:
        """Show the mesh: %mesh [status | nodes | connect ADDRESS | jobs | why KEY | cancel JOB | help]."""
        from .cell_source import BadCell
        from .line_magic import answer

        try:
            return answer(line)
        except BadCell as error:
            raise UsageError(str(error)) from None
        except ComputeMeshError as error:
            raise _plain(error) from None

    @no_var_expand
    @output_can_be_silenced
    @cell_magic("mesh")
    def mesh(self, line: str, cell: str) -> Any:
        """Run the cell on the mesh as though it ran here. `%%mesh --help` lists the options."""
        # Imported here: a kernel that loads the extension at its start should not wait for Dask's client.
        from .cell_source import BadCell, CellSource, CellSyntaxError
        from .magic import run_text
        from .screens import screen_here
        from .settling import Notebook
        from .traceback_text import Rendered

        shell = self.shell

        def title_of(file: str) -> str:
            found = shell.compile.format_code_name(file)
            return " ".join(found) if found else file

        shown = f"%%mesh {line}".rstrip() + "\n" + cell
        text = shell.transform_cell(cell)
        filename = shell.compile.cache(shown, _cell_number(shell))
        source = CellSource(text, filename, shown)
        try:
            return run_text(line, cell, source, Notebook(shell.user_ns, screen_here(), title_of))
        except CellSyntaxError as error:
            raise error from None
        except (BadCell, BadRequirement) as error:
            raise UsageError(str(error)) from None
        except ComputeMeshError as error:
            raise _plain(error) from None
        except KeyboardInterrupt:
            # The frames are our waiting; what was lost has been printed.
            stopped = KeyboardInterrupt("the mesh cell was interrupted")
            stopped._render_traceback_ = Rendered([f"KeyboardInterrupt: {stopped}"])  # type: ignore[attr-defined]
            raise stopped from None


def _plain(error: ComputeMeshError) -> ComputeMeshError:
    """Let IPython show the message alone: the frames are ours."""
    from .traceback_text import Rendered

    if not hasattr(error, "_render_traceback_"):
        error._render_traceback_ = Rendered([f"{type(error).__name__}: {error}"])  # type: ignore[attr-defined]
    return error


def _cell_number(shell: Any) -> int:
    """Return the number of the cell that is running: IPython counts on before a cell or after it, by version."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        found = shell.compile.format_code_name(frame.f_code.co_filename)
        number = re.fullmatch(r"In\[(\d+)\]", found[1]) if found else None
        if number is not None:
            return int(number[1])
        frame = frame.f_back
    return int(shell.execution_count)


class MeshForDask:
    """Has Dask compute on the mesh from its import on: most notebooks' first cell should not wait for Dask."""

    def __init__(self) -> None:
        self._setting: Any = None
        self._call_off = when_imported("dask", self._set)

    def _set(self) -> None:
        import dask.config

        self._setting = dask.config.set(scheduler=LazyMeshClient())

    def undo(self) -> None:
        """Put Dask's configuration back; where somebody has opened a client since, theirs stays."""
        self._call_off()
        if self._setting is None:
            return
        import dask.config

        if isinstance(dask.config.get("scheduler", None), LazyMeshClient):
            self._setting.__exit__(None, None, None)


_loaded: dict[int, Any] = {}
"""For each shell by id, what puts Dask's configuration back."""


def load_ipython_extension_into(shell: Any) -> None:
    """Register ``%%mesh`` and let Dask compute on the mesh; loading twice changes nothing."""
    if id(shell) in _loaded:
        return
    from .completion import MeshWords, ask_mesh, matcher_for
    from .help_cell import with_body

    shell.register_magics(MeshMagics)
    shell.input_transformers_cleanup.append(with_body)
    matcher = matcher_for(shell, MeshWords(ask_mesh))
    shell.Completer.custom_matchers.append(matcher)
    _loaded[id(shell)] = MeshForDask(), matcher


def unload_ipython_extension_from(shell: Any) -> None:
    """Take ``%%mesh`` away, close the connection that it opened, and put Dask's configuration back."""
    from .connection import disconnect
    from .help_cell import with_body

    if id(shell) not in _loaded:
        return
    for_dask, matcher = _loaded.pop(id(shell))
    if with_body in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.remove(with_body)
    if matcher in shell.Completer.custom_matchers:
        shell.Completer.custom_matchers.remove(matcher)
    for kind in ("cell", "line"):
        shell.magics_manager.magics[kind].pop("mesh", None)
    disconnect()
    for_dask.undo()

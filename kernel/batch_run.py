"""The command ``mesh batch``: from what was typed to the exit code."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from computemesh.errors import BadConfiguration

from .batch import PAGE, Batch, Wishes, done_before, plans_of
from .batch_page import in_words
from .batch_screen import shown


def parameters_of(given: Sequence[tuple[str, str]], file: Path | None) -> dict[str, Any]:
    """Return the parameters of ``-p`` and ``--parameters``, read as papermill reads its own; the former count over
    the latter.

    Raises:
        BadConfiguration: the file holds no mapping.
    """
    import yaml

    found: dict[str, Any] = {}
    if file is not None:
        try:
            read = yaml.safe_load(file.read_text("utf-8"))
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise BadConfiguration(f"The parameters in {file} cannot be read: {error}") from None
        if not isinstance(read, dict):
            raise BadConfiguration(f"{file} holds no parameters: write one `name: value` a line")
        found.update(read)
    found.update({name: _typed(value) for name, value in given})
    return found


def _typed(text: str) -> Any:
    words = {"True": True, "False": False, "None": None}
    if text in words:
        return words[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def run_batch(notebooks: Sequence[Path], out: Path, wishes: Wishes, resume: bool) -> int:
    """Run notebooks and show how they go; return the exit code.

    Raises:
        BadConfiguration: something that was typed cannot be used; nothing has run.
        DriverError: the mesh cannot be reached.
    """
    from rich.console import Console

    from .connection import current

    plans = plans_of(notebooks, out, wishes.parameters)
    earlier = done_before(out, plans) if resume else {}
    current()
    _import_nbformat()
    console = Console()
    signal.signal(signal.SIGTERM, _as_interrupt)
    code = 0
    with shown(lambda: batch.rows, console) as watch:
        batch = Batch(plans, wishes, out, earlier, watch)
        try:
            batch.run()
        except KeyboardInterrupt as error:
            code = 128 + (signal.SIGTERM if isinstance(error, _Terminated) else signal.SIGINT)
    console.print(f"{in_words(batch.rows)}; see {out / PAGE}", highlight=False, soft_wrap=True)
    return code or int(any(row.state != "done" for row in batch.rows))


def _import_nbformat() -> None:
    """Import it without a grammar of URIs, which jsonschema would import first and which takes two seconds to build.

    No schema of notebooks has such a URI, and nobody else's code runs in this process.
    """
    grammar = "rfc3987_syntax"
    if "jsonschema" in sys.modules or grammar in sys.modules:
        return
    sys.modules[grammar] = None  # type: ignore[assignment]
    try:
        import nbformat  # noqa: F401 - the import is what counts
    finally:
        del sys.modules[grammar]


class _Terminated(KeyboardInterrupt):
    """SIGTERM stops a batch as Ctrl-C does."""


def _as_interrupt(number: int, frame: Any) -> None:
    raise _Terminated

"""Completes the lines of ``%%mesh`` and ``%mesh``: options, pools, nodes, facts and the notebook's names.

What the mesh has is asked for in the background and remembered; a Tab never waits for a driver that does not answer.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FRESH_SECONDS = 10.0
PATIENCE_SECONDS = 0.25
"""How long the first Tab waits for an answer that is on its way."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the mesh."""

    pools: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()


class MeshWords:
    """The newest answer about pools and nodes, renewed in the background."""

    def __init__(self, ask: Callable[[], Known]) -> None:
        self._ask = ask
        self._known = Known()
        self._asked_at = float("-inf")
        self._answered = threading.Event()
        self._lock = threading.Lock()

    def now(self) -> Known:
        """Return what is known, after at most `PATIENCE_SECONDS`."""
        with self._lock:
            if time.monotonic() - self._asked_at > FRESH_SECONDS:
                self._asked_at = time.monotonic()
                self._answered.clear()
                threading.Thread(target=self._renew, name="computemesh-completion", daemon=True).start()
        self._answered.wait(PATIENCE_SECONDS)
        return self._known

    def _renew(self) -> None:
        try:
            self._known = self._ask()
        except Exception:  # no mesh, or one that does not answer: there is nothing to complete
            self._known = Known()
        finally:
            self._answered.set()


def ask_mesh() -> Known:
    """Ask the mesh that is connected; opens no connection."""
    connection = sys.modules.get(f"{__package__}.connection")
    mesh = connection._current if connection is not None else None
    if mesh is None or mesh.local or mesh.closed:
        return Known()
    rows = mesh.nodes()
    return Known(
        tuple(sorted({pool for row in rows for pool in row.pools})),
        rows.names,
        tuple(sorted({row.site for row in rows if row.site})),
    )


def completions(text: str, token: str, names: Mapping[str, Any], known: Callable[[], Known]) -> Sequence[str] | None:
    """Return what may stand where `token` is being typed; None when the line is not ours.

    `text` is everything before the cursor, `names` are the notebook's.
    """
    line = text.rsplit("\n", 1)[-1]
    start = line.lstrip()
    if not start.startswith(("%%mesh ", "%mesh ")):
        return None
    words = line[: len(line) - len(token)].split()
    if start.startswith("%mesh "):
        return _after_line_magic(words, token)
    before = words[-1] if words else ""
    if token.startswith("-"):
        # Imported at the first Tab: a kernel loads this module at its start.
        from .arguments import option_names

        return _starting(option_names(), token)
    found: Sequence[str] | None = None
    if before == "--pool":
        found = known().pools
    elif _option_of(words) in {"--ship", "--return"}:
        found = ["none", *(name for name in names if not name.startswith("_"))]
    elif _option_of(words) == "--where":
        from .where_expression import FACTS

        about = known()
        found = [*FACTS, *(f"'{each}'" for each in (*about.nodes, *about.sites, *about.pools))]
        token = token.lstrip('"(')
    return None if found is None else _starting(found, token)


def _option_of(words: Sequence[str]) -> str:
    """Return the option that the next word belongs to; several words may follow one option."""
    return next((word for word in reversed(words) if word.startswith("--")), "")


def _after_line_magic(words: Sequence[str], token: str) -> Sequence[str] | None:
    if len(words) == 1:
        from .line_magic import COMMANDS

        return _starting(COMMANDS, token)
    handles = sys.modules.get(f"{__package__}.job_handle")
    if words[1] in {"cancel", "why"} and handles is not None:
        jobs = handles.jobs
        return _starting([str(job.number) for job in jobs() if words[1] == "why" or not job.done()], token)
    return None


def _starting(found: Sequence[str] | Mapping[str, Any], token: str) -> list[str]:
    return [each for each in found if each.startswith(token)]


def matcher_for(shell: Any, words: MeshWords) -> Any:
    """Return a matcher for IPython's completer."""
    from IPython.core.completer import SimpleCompletion, context_matcher

    @context_matcher(identifier="computemesh")
    def mesh_matcher(context: Any) -> dict[str, Any]:
        before = context.full_text[: _offset(context)]
        line = before.rsplit("\n", 1)[-1]
        # IPython cuts tokens where Python does; ours end at spaces.
        token = "" if not line or line[-1].isspace() else line.split()[-1].rsplit(",", 1)[-1]
        found = completions(before, token, shell.user_ns, words.now)
        if found is None:
            return {"completions": []}
        token = token.lstrip('"(') if not token.startswith("-") else token
        return {
            "completions": [SimpleCompletion(text=each, type="mesh") for each in found],
            "matched_fragment": token,
            # Beside our options Python's own names only confuse.
            "suppress": bool(found),
        }

    return mesh_matcher


def _offset(context: Any) -> int:
    lines = context.full_text.split("\n")
    return sum(len(line) + 1 for line in lines[: context.cursor_line]) + int(context.cursor_position)

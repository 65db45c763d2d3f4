"""What a cell is refused for before anything runs, by name and with what to do instead."""

from __future__ import annotations

import ast
import io
import re
import socket
import sys
import threading
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from computemesh.errors import CannotShip

from .cell_names import cell_names, globals_of
from .cell_source import BadCell
from .job_handle import MeshJob
from .ship_names import names_to_ship

ASKING = frozenset({"input", "breakpoint"})
_ASKING_CALLS = frozenset({"getpass.getpass", "pdb.set_trace", "sys.stdin.readline", "sys.stdin.read"})

_DATABASES = frozenset(
    {"sqlite3", "psycopg", "psycopg2", "pymysql", "MySQLdb", "oracledb", "pyodbc", "duckdb", "_duckdb", "redis"}
)
_CONNECTIONS = frozenset({"Connection", "Cursor", "DuckDBPyConnection", "Redis", "AsyncConnection", "connection"})
_LOOKED_AT = 1000
"""Most values that the search for a culprit looks at, so that a huge structure does not hold up its own error."""

_LOCKS = (
    type(threading.Lock()),
    type(threading.RLock()),
    threading.Condition,
    threading.Event,
    threading.Semaphore,
    threading.Barrier,
    threading.Thread,
)


def check_plain(raw: str, text: str, own_names: frozenset[str]) -> None:
    """Refuse what has no meaning on a node; `raw` is the cell as typed, `text` is what IPython makes of it.

    Raises:
        BadCell: a magic, a shell command or a question to the keyboard, named.
    """
    reads = cell_names(text).reads
    if "get_ipython" in reads:
        raise BadCell(
            f"{_offending_line(raw)}: magics and shell commands belong to the notebook and cannot run on a node. "
            "Run them in a cell of their own, or use `subprocess.run([...])` inside the mesh cell"
        )
    for name in sorted(ASKING & reads - own_names):
        raise BadCell(_cannot_ask(f"{name}()"))
    asking = _asking_call(ast.parse(text))
    if asking:
        raise BadCell(_cannot_ask(f"{asking}()"))


def check_names(reads: Iterable[str], home: Mapping[str, Any]) -> None:
    """Refuse names of the notebook that cannot be on a node, before anything is pickled.

    Raises:
        BadCell: a function among them waits for a keyboard.
        CannotShip: a value belongs to this process, or to a GPU of this machine.
    """
    for name in sorted(names_to_ship(reads, home)):
        value = home[name]
        if isinstance(value, types.FunctionType):
            asked = ASKING & globals_of(value.__code__) - home.keys()
            if asked and value.__globals__ is home:
                raise BadCell(f"`{name}` calls {min(asked)}(). {_cannot_ask(f'{min(asked)}()')}")
            continue
        found = bound_to_this_process(value)
        if found:
            raise CannotShip(f"Cannot send `{name}`, {kind_of(value)}, to the mesh: {found}")
        on_gpu = _on_gpu(value)
        if on_gpu:
            raise CannotShip(f"Cannot send `{name}`, {kind_of(value)}, to the mesh: {on_gpu}")


def with_culprit(error: CannotShip, home: Mapping[str, Any]) -> CannotShip:
    """Return `error` with the place inside the variable that is to blame, where it can be found."""
    named = re.match(r"Cannot send `(\w+)`", str(error))
    value = home.get(named[1]) if named else None
    if named is None or value is None:
        return error
    for path, inner in _inside(named[1], value):
        why = bound_to_this_process(inner)
        if why and path != named[1]:
            return CannotShip(f"Cannot send `{named[1]}`, {kind_of(value)}, to the mesh: `{path}` is in it; {why}")
    return error


def bound_to_this_process(value: Any) -> str:
    """Return why a value of this kind can be in this process only, and what to do; empty for all others."""
    if isinstance(value, _LOCKS):
        return "a lock or thread belongs to its process. Make it inside the mesh cell, or leave it out"
    if isinstance(value, io.IOBase) and not isinstance(value, io.StringIO | io.BytesIO):
        name = getattr(value, "name", None)
        where = f" ({name})" if isinstance(name, str) else ""
        return f"an open file{where} belongs to its process. Open it inside the mesh cell, or send what is in it"
    if isinstance(value, socket.socket):
        return "a socket belongs to its process. Connect inside the mesh cell"
    if isinstance(value, types.GeneratorType | types.AsyncGeneratorType):
        return "a generator cannot travel. Send list(...) of it, or make it inside the mesh cell"
    if isinstance(value, types.CoroutineType):
        return "a coroutine cannot travel. Await it here, or call its function inside the mesh cell"
    if isinstance(value, MeshJob):
        return "it is a handle of this notebook. Use what its .result() returns"
    kind = type(value)
    if kind.__module__.partition(".")[0] in _DATABASES and kind.__name__ in _CONNECTIONS:
        return "a database connection belongs to its process. Connect inside the mesh cell, or send the rows"
    if kind.__module__.startswith("sqlalchemy.") and kind.__name__ in {"Engine", "Connection", "Session"}:
        return "a database connection belongs to its process. Connect inside the mesh cell, or send the rows"
    return ""


def kind_of(value: Any) -> str:
    """Return what `value` is, for a sentence."""
    kind = type(value)
    return f"a {kind.__qualname__}" if kind.__module__ == "builtins" else f"a {kind.__module__}.{kind.__qualname__}"


def _on_gpu(value: Any) -> str:
    """Return why a value in a GPU's memory cannot travel as it is; looks into lists, dicts and torch modules."""
    for each in _shallow(value):
        if _has(each, "is_cuda") and each.is_cuda is True:
            return "it is in the memory of this machine's GPU. Send `.cpu()` of it, and move it back on the node"
        if _has(each, "__cuda_array_interface__"):
            return "it is in the memory of this machine's GPU. Send `cupy.asnumpy(...)` of it"
    return ""


def _shallow(value: Any) -> Iterator[Any]:
    yield value
    if isinstance(value, list | tuple | set | frozenset):
        yield from list(value)[:100]
    elif isinstance(value, dict):
        yield from list(value.values())[:100]
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.nn.Module):
        yield from value.parameters()


def _has(value: Any, attribute: str) -> bool:
    try:
        return not isinstance(value, type) and hasattr(value, attribute)
    except Exception:  # a user's __getattr__ may raise anything
        return False


def _inside(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what `value` is made of, with how one would write it, breadth first and bounded."""
    waiting: list[tuple[str, Any]] = [(name, value)]
    seen: set[int] = set()
    for _ in range(_LOOKED_AT):
        if not waiting:
            return
        path, each = waiting.pop(0)
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield path, each
        if isinstance(each, dict):
            waiting += [(f"{path}[{key!r}]", part) for key, part in list(each.items())[:100]]
        elif isinstance(each, list | tuple):
            waiting += [(f"{path}[{number}]", part) for number, part in enumerate(each[:100])]
        elif not isinstance(each, type | types.ModuleType | types.FunctionType):
            attributes = getattr(each, "__dict__", None)
            if isinstance(attributes, dict):
                waiting += [(f"{path}.{key}", part) for key, part in attributes.items()]


def _asking_call(tree: ast.AST) -> str:
    """Return a call that waits for the keyboard, as it is written; empty without one."""
    imported: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if f"{node.module}.{alias.name}" in _ASKING_CALLS:
                    imported[alias.asname or alias.name] = alias.name
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            written = ast.unparse(node.func) if isinstance(node.func, ast.Attribute | ast.Name) else ""
            if written in _ASKING_CALLS or written in imported:
                return written
    return ""


def _cannot_ask(what: str) -> str:
    return f"{what} cannot ask on a node: ask in a cell of its own, and use the answer in the mesh cell"


def _offending_line(raw: str) -> str:
    for line in raw.splitlines():
        text = line.strip()
        if text.startswith(("%", "!")) or re.search(r"=\s*[!%]", text) or text.endswith("?"):
            return f"`{text}`"
    return "`get_ipython()`"

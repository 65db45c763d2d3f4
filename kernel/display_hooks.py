"""Lets code that imports IPython's ``display`` on a node reach the notebook.

Without a shell IPython's ``display`` only prints. Its functions are replaced, once IPython is there, by ones that
ask whether a cell is running in this thread; outside cells they do what they always did.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_MODULE = "IPython.core.display_functions"


def watch_ipython() -> None:
    """Replace IPython's display functions now, or as soon as somebody imports them."""
    module = sys.modules.get(_MODULE)
    if module is not None:
        _replace(module)
    elif not any(isinstance(finder, _Watch) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watch())


class _Watch(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            stock = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                stock(module)
                _replace(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _replace(module: ModuleType) -> None:
    if getattr(module.display, "of_mesh", False):
        return
    from . import node_display, node_output

    def publish(data: Any, metadata: Any = None, *, transient: Any = None, **extra: Any) -> Any:
        return node_display.display(
            data, raw=True, metadata=metadata, transient=transient, update=bool(extra.get("update"))
        )

    def update_display(value: Any, *, display_id: str, **extra: Any) -> Any:
        return node_display.display(value, display_id=display_id, update=True, **extra)

    def clear_output(wait: bool = False) -> None:
        sink = node_output.current_sink()
        if sink is not None:
            sink.clear(wait)

    replacements: dict[str, Callable[..., Any]] = {
        "display": node_display.display,
        "publish_display_data": publish,
        "update_display": update_display,
        "clear_output": clear_output,
    }
    for name, ours in replacements.items():
        stock = getattr(module, name)
        chosen = _either(stock, ours)
        for holder in (module, sys.modules.get("IPython.display"), sys.modules.get("IPython.core.display")):
            if holder is not None and getattr(holder, name, None) is stock:
                setattr(holder, name, chosen)


def _either(stock: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    import functools

    from .node_output import current_sink

    @functools.wraps(stock)
    def chosen(*args: Any, **kwargs: Any) -> Any:
        return (stock if current_sink() is None else ours)(*args, **kwargs)

    chosen.of_mesh = True  # type: ignore[attr-defined]
    return chosen

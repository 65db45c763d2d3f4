"""How a value shows itself, by MIME type; needs no IPython, whose import would cost a cell a third of a second."""

from __future__ import annotations

import base64
import io
import sys
from typing import Any

WIDGET = "application/vnd.jupyter.widget-view+json"
WIDGET_NOTE = (
    "Widgets need a kernel beside them and cannot live on a node: their text is shown. Make the widget in the "
    "notebook and the data for it on the node"
)

_METHODS = (
    ("_repr_html_", "text/html"),
    ("_repr_markdown_", "text/markdown"),
    ("_repr_svg_", "image/svg+xml"),
    ("_repr_png_", "image/png"),
    ("_repr_jpeg_", "image/jpeg"),
    ("_repr_latex_", "text/latex"),
    ("_repr_json_", "application/json"),
    ("_repr_javascript_", "application/javascript"),
)


def mime_of(value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return how `value` shows, as data and metadata by MIME type; needs no IPython."""
    data: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    bundle = getattr(value, "_repr_mimebundle_", None)
    if bundle is not None and not isinstance(value, type):
        found = bundle(include=None, exclude=None)
        if isinstance(found, tuple):
            data, metadata = dict(found[0]), dict(found[1])
        elif found:
            data = dict(found)
    for method, mime in _METHODS:
        if mime in data or isinstance(value, type):
            continue
        shown = _shown(value, method)
        if isinstance(shown, tuple):
            shown, metadata[mime] = shown
        if shown is not None:
            data[mime] = base64.b64encode(shown).decode() if isinstance(shown, bytes) else shown
    # The widget's state is in this process; a view of it in the notebook would find no model.
    data.pop(WIDGET, None)
    if not data and _is_figure(value):
        data["image/png"] = _figure_png(value)
    data.setdefault("text/plain", repr(value))
    return data, metadata


def _shown(value: Any, method: str) -> Any:
    try:
        found = getattr(value, method, None)
        return found() if callable(found) else None
    except Exception:  # as IPython does: a broken repr leaves the others
        return None


def mime_bundle(value: Any) -> dict[str, Any]:
    """Return the data of `mime_of`, or a plain note when `value` cannot even be shown."""
    try:
        return mime_of(value)[0]
    except Exception as error:  # a user's repr may raise anything
        return {"text/plain": f"<{type(value).__name__} whose repr failed: {error}>"}


def is_widget(value: Any) -> bool:
    """Return whether `value` is a Jupyter widget, which lives in the process that made it."""
    return any(base.__module__.startswith("ipywidgets.") for base in type(value).__mro__)


def _is_figure(value: Any) -> bool:
    figures = sys.modules.get("matplotlib.figure")
    return figures is not None and isinstance(value, figures.Figure)


def _figure_png(figure: Any) -> str:
    # savefig goes through a canvas of its own kind whatever backend is chosen.
    file = io.BytesIO()
    figure.savefig(file, format="png", bbox_inches="tight")
    return base64.b64encode(file.getvalue()).decode()

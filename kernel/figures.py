"""A matplotlib backend for cells on nodes: draws with Agg, and ``plt.show()`` shows in the notebook."""

from __future__ import annotations

from typing import Any

from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg

from .node_output import current_sink


class FigureManager(FigureManagerBase):
    """Shows all open figures at ``plt.show()``."""

    @classmethod
    def pyplot_show(cls, *, block: bool | None = None) -> None:
        """Display the open figures and close them."""
        sink = current_sink()
        if sink is not None:
            sink.figures()


class FigureCanvas(FigureCanvasAgg):
    """Agg's canvas with our manager."""

    manager_class: Any = FigureManager

"""The Jupyter server's side of the panel: one authenticated WebSocket under Jupyter's own base URL."""

from __future__ import annotations

import contextlib
from typing import Any

from jupyter_core.utils import ensure_async
from jupyter_server.auth.decorator import ws_authenticated
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from jupyter_server.extension.application import ExtensionApp
from tornado import web, websocket

from computemesh.audience import Reader
from computemesh.identity import find_identity, home_folder

from .upstream import Upstream

RESOURCE = "computemesh"
"""What an authorizer of Jupyter is asked about."""


class FeedHandler(WebSocketMixin, websocket.WebSocketHandler, JupyterHandler):
    """One panel in one browser. It is told of the mesh, and says nothing."""

    auth_resource = RESOURCE
    # A panel that is left open is no activity: Jupyter's culling of idle servers must still find one.
    _track_activity = False

    def initialize(self, upstream: Upstream) -> None:
        """Keep the shared connection; called by tornado."""
        self._upstream = upstream
        self._mesh_reader: Reader | None = None

    @ws_authenticated
    async def get(self, *args: Any, **kwargs: Any) -> None:
        """Open the WebSocket for somebody who is logged in and may read."""
        allowed = await ensure_async(self.authorizer.is_authorized(self, self.current_user, "read", RESOURCE))
        if not allowed:
            raise web.HTTPError(403)
        await super().get(*args, **kwargs)

    def get_compression_options(self) -> dict[str, Any]:
        """Compress; called by tornado."""
        return {}

    def open(self, *args: Any, **kwargs: Any) -> None:
        """Begin to tell; called by tornado."""
        super().open(*args, **kwargs)
        self._mesh_reader = self._upstream.join(self._tell)

    async def _tell(self, message: bytes) -> None:
        with contextlib.suppress(websocket.WebSocketClosedError):
            await self.write_message(message.decode())

    def on_message(self, message: str | bytes) -> None:
        """Ignore what a browser says; called by tornado."""

    def on_close(self) -> None:
        """Stop telling; called by tornado."""
        super().on_close()
        if self._mesh_reader is not None:
            self._upstream.leave(self._mesh_reader)


class MeshExtension(ExtensionApp):
    """Loaded by the Jupyter server; does nothing until a panel opens."""

    name = "computemesh"

    def initialize_settings(self) -> None:
        """Make the shared connection, closed; called by the Jupyter server."""
        self._upstream = Upstream(lambda: find_identity(home_folder(None)))

    def initialize_handlers(self) -> None:
        """Add the route; called by the Jupyter server."""
        self.handlers.append((r"/computemesh/feed", FeedHandler, {"upstream": self._upstream}))

    async def stop_extension(self) -> None:
        """Close the connection; called by the Jupyter server when it stops."""
        self._upstream.close()

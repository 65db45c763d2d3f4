"""Signs that somebody uses the machine without touching it: a film, a call, a presentation.

Programs that show something for long ask the desktop not to go idle, or fill the screen; that is what is looked at.
Each source returns what it saw in words, empty when nothing, and is asked every `LOOK_SECONDS`.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

LOOK_SECONDS = 2.0
Source = Callable[[], str]


class Signs:
    """Asks all sources now and then, and remembers what they said."""

    def __init__(self, sources: Sequence[Source], clock: Callable[[], float] = time.monotonic) -> None:
        self._sources, self._clock = sources, clock
        self._due = float("-inf")
        self.seen = ""
        """What the last look said."""

    def __call__(self) -> str:
        """Return what shows that the machine is used; empty when nothing does."""
        if self._clock() >= self._due:
            self._due = self._clock() + LOOK_SECONDS
            self.seen = next((seen for source in self._sources if (seen := _asked(source))), "")
        return self.seen


def _asked(source: Source) -> str:
    try:
        return source()
    except (OSError, ValueError, KeyError, AttributeError):
        # A bus or a display that goes away says nothing any more.
        return ""


# ---------------------------------------------------------------- the login manager and the desktop's session


class LogindInhibitors:
    """Who keeps the login manager from calling the session idle (``ListInhibitors`` of org.freedesktop.login1)."""

    def __init__(self, bus: str = "SYSTEM") -> None:
        """Connect to the bus; `bus` may be an address.

        Raises:
            OSError: there is no bus, or no login manager on it.
        """
        self._ask = _caller(bus, "/org/freedesktop/login1", "org.freedesktop.login1", "org.freedesktop.login1.Manager")
        self()

    def __call__(self) -> str:
        """Return who it is."""
        return inhibitor_words(self._ask("ListInhibitors")[0])


def inhibitor_words(inhibitors: Iterable[Sequence[Any]]) -> str:
    """Return which of the inhibitors (what, who, why, mode, user, process) means that somebody looks at the screen."""
    for what, who, why, mode, *_ in inhibitors:
        if mode == "block" and "idle" in str(what).split(":"):
            return f"{who} keeps it awake{f' ({why})' if why else ''}"
    return ""


class SessionInhibitors:
    """Whether a program keeps the desktop's session from going idle (org.gnome.SessionManager, flag 8: idle)."""

    def __init__(self, bus: str = "SESSION") -> None:
        """Connect to the session's bus.

        Raises:
            OSError: there is none, or nobody there knows.
        """
        name = "org.gnome.SessionManager"
        self._ask = _caller(bus, "/org/gnome/SessionManager", name, name)
        self()

    def __call__(self) -> str:
        """Return whether one does."""
        return "a film, call or presentation keeps it awake" if self._ask("IsInhibited", "u", (8,))[0] else ""


def _caller(bus: str, path: str, name: str, interface: str) -> Callable[..., Any]:
    from jeepney import DBusAddress, new_method_call
    from jeepney.io.blocking import open_dbus_connection
    from jeepney.low_level import MessageType

    try:
        connection = open_dbus_connection(bus)
    except (KeyError, ValueError) as error:
        raise OSError(f"no bus: {error}") from None
    address = DBusAddress(path, bus_name=name, interface=interface)

    def ask(method: str, signature: str | None = None, body: tuple[Any, ...] = ()) -> Any:
        reply = connection.send_and_get_reply(new_method_call(address, method, signature, body), timeout=1)
        if reply.header.message_type is not MessageType.method_return:
            raise OSError(f"{name}: {reply.body[0] if reply.body else 'error'}")
        return reply.body

    return ask


# ---------------------------------------------------------------- X11


class X11Fullscreen:
    """Whether the active window fills the screen: ``_NET_WM_STATE_FULLSCREEN`` (Extended Window Manager Hints)."""

    def __init__(self, display: str) -> None:
        """Connect to `display`.

        Raises:
            OSError: there is no such library or display.
        """
        self._x11 = x11 = ctypes.CDLL(ctypes.util.find_library("X11") or "libX11.so.6")
        x11.XOpenDisplay.restype = ctypes.c_void_p
        x11.XOpenDisplay.argtypes = [ctypes.c_char_p]
        x11.XDefaultRootWindow.restype = ctypes.c_ulong
        x11.XDefaultRootWindow.argtypes = [ctypes.c_void_p]
        x11.XInternAtom.restype = ctypes.c_ulong
        x11.XInternAtom.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]
        x11.XFree.argtypes = [ctypes.c_void_p]
        x11.XGetWindowProperty.argtypes = [
            ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_long, ctypes.c_long, ctypes.c_int, ctypes.c_ulong,
            *[ctypes.c_void_p] * 5,
        ]  # fmt: skip
        self._display = x11.XOpenDisplay(display.encode())
        if not self._display:
            raise OSError(f"no X server at {display!r}")
        # A window may close between two questions; Xlib would end the process for that.
        self._on_error = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(lambda _display, _event: 0)
        x11.XSetErrorHandler(self._on_error)
        self._root = x11.XDefaultRootWindow(self._display)
        names = (b"_NET_ACTIVE_WINDOW", b"_NET_WM_STATE", b"_NET_WM_STATE_FULLSCREEN")
        self._active, self._state, self._fullscreen = (x11.XInternAtom(self._display, name, 0) for name in names)

    def __call__(self) -> str:
        """Return whether it does."""
        active = self._property(self._root, self._active)
        if not active or not active[0]:
            return ""
        full = self._fullscreen in self._property(active[0], self._state)
        return "something fills its screen" if full else ""

    def _property(self, window: int, name: int) -> list[int]:
        """Return a property's values of 32 bits, which Xlib hands over as longs."""
        kind, size = ctypes.c_ulong(), ctypes.c_int()
        count, left = ctypes.c_ulong(), ctypes.c_ulong()
        data = ctypes.POINTER(ctypes.c_ulong)()
        failed = self._x11.XGetWindowProperty(
            self._display, window, name, 0, 64, 0, 0, ctypes.byref(kind), ctypes.byref(size), ctypes.byref(count),
            ctypes.byref(left), ctypes.byref(data),
        )  # fmt: skip
        if failed or not data:
            return []
        try:
            return [data[index] for index in range(count.value)] if size.value == 32 else []
        finally:
            self._x11.XFree(data)


# ---------------------------------------------------------------- Windows and macOS

QUNS = {2: "something fills its screen", 3: "a game fills its screen", 4: "it gives a presentation"}
"""QUERY_USER_NOTIFICATION_STATE of shellapi.h: busy, Direct3D in full screen, presentation mode."""


def windows_notification_state() -> str:
    """Return what SHQueryUserNotificationState says."""
    libraries: Any = ctypes.windll  # type: ignore[attr-defined,unused-ignore]
    state = ctypes.c_int()
    if libraries.shell32.SHQueryUserNotificationState(ctypes.byref(state)):
        return ""
    return QUNS.get(state.value, "")


def macos_assertions() -> str:
    """Return whether a power assertion keeps the display awake, as ``pmset -g assertions`` tells."""
    command = ["/usr/bin/pmset", "-g", "assertions"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False).stdout
    return assertion_words(said)


def assertion_words(said: str) -> str:
    """Return what ``pmset -g assertions`` means for us: its summary has a line of name and 0 or 1 each."""
    for line in said.splitlines():
        words = line.split()
        if words[:1] == ["PreventUserIdleDisplaySleep"]:
            return "a film, call or presentation keeps it awake" if words[-1] == "1" else ""
    return ""


def find_signs() -> list[Source]:
    """Return the sources that answer on this machine."""
    if sys.platform == "win32":
        return [windows_notification_state]
    if sys.platform == "darwin":
        return [macos_assertions]
    sources: list[Source] = []
    display = os.environ.get("DISPLAY")
    if display:
        with contextlib.suppress(OSError, AttributeError):
            sources.append(X11Fullscreen(display))
    for kind in (SessionInhibitors, LogindInhibitors):
        with contextlib.suppress(OSError, ImportError):
            sources.append(kind())
    return sources

"""How long ago somebody last used this machine's keyboard, mouse or terminal.

Several sources are asked, and the least age counts: one that sees the owner is right, one that does not may be blind.
None means that no source answers.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Source = Callable[[], float | None]
"""Returns seconds since the last input, or None when it cannot say now."""

LOGIND_SECONDS = 5.0
"""How often logind is asked: a round trip on the bus costs more than all else in a sample."""


class _ScreenSaverInfo(ctypes.Structure):
    """XScreenSaverInfo of X11/extensions/scrnsaver.h."""

    _fields_ = (
        ("window", ctypes.c_ulong),
        ("state", ctypes.c_int),
        ("kind", ctypes.c_int),
        ("til_or_since", ctypes.c_ulong),
        ("idle", ctypes.c_ulong),
        ("event_mask", ctypes.c_ulong),
    )


class X11Source:
    """An X server's own count, by the extension MIT-SCREEN-SAVER."""

    def __init__(self, display: str) -> None:
        """Connect to `display`.

        Raises:
            OSError: there is no such library, display or extension.
        """
        self._x11 = ctypes.CDLL(ctypes.util.find_library("X11") or "libX11.so.6")
        self._saver = ctypes.CDLL(ctypes.util.find_library("Xss") or "libXss.so.1")
        self._x11.XOpenDisplay.restype = ctypes.c_void_p
        self._x11.XOpenDisplay.argtypes = [ctypes.c_char_p]
        self._x11.XDefaultRootWindow.restype = ctypes.c_ulong
        self._x11.XDefaultRootWindow.argtypes = [ctypes.c_void_p]
        self._x11.XCloseDisplay.argtypes = [ctypes.c_void_p]
        self._saver.XScreenSaverAllocInfo.restype = ctypes.POINTER(_ScreenSaverInfo)
        pointer = ctypes.POINTER(_ScreenSaverInfo)
        self._saver.XScreenSaverQueryInfo.argtypes = [ctypes.c_void_p, ctypes.c_ulong, pointer]
        self._display = self._x11.XOpenDisplay(display.encode())
        if not self._display:
            raise OSError(f"no X server at {display!r}")
        # Xlib ends the whole process when its server goes; this keeps the agent alive, and the source falls silent.
        self._broken = False
        self._on_error = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self._gone)
        self._on_exit = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(lambda _display, _data: None)
        self._x11.XSetIOErrorHandler(self._on_error)
        with contextlib.suppress(AttributeError):  # since libX11 1.7
            self._x11.XSetIOErrorExitHandler.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
            self._x11.XSetIOErrorExitHandler(self._display, self._on_exit, None)
        self._root = self._x11.XDefaultRootWindow(self._display)
        self._info = self._saver.XScreenSaverAllocInfo()
        if self() is None:
            raise OSError(f"the X server at {display!r} does not count idle time")

    def _gone(self, _display: int) -> int:
        self._broken = True
        return 0

    def __call__(self) -> float | None:
        """Return the age of the last input."""
        if self._broken or not self._saver.XScreenSaverQueryInfo(self._display, self._root, self._info):
            return None
        if self._broken:
            return None
        return float(self._info.contents.idle) / 1000


class LogindSource:
    """The login manager's hint, which Wayland and X11 desktops set and which covers text consoles.

    It says *active* for as long as the desktop's own idle delay has not passed, so it is coarse in the owner's favour.
    """

    def __init__(self, bus: str = "SYSTEM", clock: Callable[[], float] = time.time) -> None:
        """Connect to the bus; `bus` may be an address.

        Raises:
            OSError: there is no bus, or no login manager on it.
        """
        from jeepney.io.blocking import open_dbus_connection

        self._clock = clock
        try:
            self._connection = open_dbus_connection(bus)
        except (KeyError, ValueError) as error:
            raise OSError(f"no bus: {error}") from None
        self._next = 0.0
        self._since: float | None = None
        try:
            self._look()
        except BaseException:
            self.close()
            raise

    def __call__(self) -> float | None:
        """Return the age of the last input; asks the bus at most every `LOGIND_SECONDS`."""
        if time.monotonic() >= self._next:
            try:
                self._look()
            except OSError:
                self._since = None
        return None if self._since is None else max(0.0, self._clock() - self._since)

    def _look(self) -> None:
        self._next = time.monotonic() + LOGIND_SECONDS
        idle, since = self._property("IdleHint"), self._property("IdleSinceHint")
        if not idle:
            self._since = self._clock()
        else:
            # Zero: nobody has been logged in since the machine started.
            self._since = since / 1e6 if since else None

    def _property(self, name: str) -> Any:
        from jeepney import DBusAddress, new_method_call
        from jeepney.low_level import MessageType

        address = DBusAddress(
            "/org/freedesktop/login1",
            bus_name="org.freedesktop.login1",
            interface="org.freedesktop.DBus.Properties",
        )
        call = new_method_call(address, "Get", "ss", ("org.freedesktop.login1.Manager", name))
        reply = self._connection.send_and_get_reply(call, timeout=1)
        if reply.header.message_type is not MessageType.method_return:
            raise OSError(f"logind: {reply.body[0] if reply.body else 'error'}")
        return reply.body[0][1]

    def close(self) -> None:
        """Leave the bus."""
        self._connection.close()


def terminal_source(
    devices: Callable[[], Iterable[Path]], clock: Callable[[], float] = time.time
) -> Callable[[], float | None]:
    """Return a source over the terminals of logged-in users: the kernel notes their last input within 8 s."""

    def age() -> float | None:
        found: list[float] = []
        for device in devices():
            with contextlib.suppress(OSError):
                found.append(max(0.0, clock() - device.stat().st_atime))
        return min(found, default=None)

    return age


def users_terminals() -> list[Path]:
    """Return the terminals on which somebody is logged in."""
    import psutil

    return [Path("/dev", user.terminal) for user in psutil.users() if user.terminal and ":" not in user.terminal]


def windows_source() -> float | None:
    """Return what GetLastInputInfo says; it sees the session that this process belongs to, and no other."""

    class LastInput(ctypes.Structure):
        _fields_ = (("size", ctypes.c_uint), ("time", ctypes.c_uint))

    libraries: Any = ctypes.windll  # type: ignore[attr-defined,unused-ignore]
    info = LastInput(ctypes.sizeof(LastInput), 0)
    if not libraries.user32.GetLastInputInfo(ctypes.byref(info)):
        return None
    # Both count milliseconds in 32 bits and wrap together every 49 days.
    return float((libraries.kernel32.GetTickCount() - info.time) & 0xFFFFFFFF) / 1000


def macos_source() -> Source:
    """Return a source over the HID system: CGEventSourceSecondsSinceLastEventType(HIDSystemState, any event)."""
    framework = "/System/Library/Frameworks/ApplicationServices.framework/ApplicationServices"
    seconds = ctypes.CDLL(framework).CGEventSourceSecondsSinceLastEventType
    seconds.restype = ctypes.c_double
    seconds.argtypes = [ctypes.c_int32, ctypes.c_uint32]
    return lambda: float(seconds(1, 0xFFFFFFFF))


def find_sources() -> list[Source]:
    """Return the sources that answer on this machine."""
    if sys.platform == "win32":
        return [windows_source]
    sources: list[Source] = []
    if sys.platform == "darwin":
        with contextlib.suppress(OSError, AttributeError):
            sources.append(macos_source())
        return [*sources, terminal_source(users_terminals)]
    display = os.environ.get("DISPLAY")
    if display:
        with contextlib.suppress(OSError, AttributeError):
            sources.append(X11Source(display))
    with contextlib.suppress(OSError, ImportError):
        sources.append(LogindSource())
    return [*sources, terminal_source(users_terminals)]


def least_age(sources: Iterable[Source]) -> float | None:
    """Return the least age that any source knows."""
    ages = (source() for source in sources)
    return min((age for age in ages if age is not None), default=None)


def has_desktop() -> bool:
    """Return whether somebody may sit before this machine, though no source of activity answers."""
    if sys.platform in ("win32", "darwin") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        return True
    return any(Path("/tmp/.X11-unix").glob("X*"))  # noqa: S108 - where X servers have their sockets

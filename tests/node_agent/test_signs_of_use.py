"""A film, a call or a presentation is use, though nobody touches the machine."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from computemesh.node_agent.signs_of_use import Signs, X11Fullscreen, assertion_words, inhibitor_words

from .waiting import BOUND


@pytest.mark.parametrize(
    ("inhibitors", "seen"),
    [
        ([], ""),
        ([("sleep", "NetworkManager", "needs to turn off networks", "delay", 0, 1)], ""),
        ([("handle-lid-switch", "gdm", "", "block", 0, 1)], ""),
        ([("sleep:idle", "Firefox", "video-playing", "block", 1000, 2)], "Firefox keeps it awake (video-playing)"),
        ([("idle", "vlc", "", "block", 1000, 2)], "vlc keeps it awake"),
        ([("idle", "vlc", "", "delay", 1000, 2)], ""),
    ],
)
def test_what_keeps_the_session_awake(inhibitors, seen):
    """Rows as logind's ListInhibitors returns them."""
    assert inhibitor_words(inhibitors) == seen


ASSERTIONS = """\
2026-12-01 13:00:00 +0100
Assertion status system-wide:
   BackgroundTask                 0
   PreventUserIdleDisplaySleep    {}
   PreventSystemSleep             0
Listed by owning process:
   pid 312(coreaudiod): [0x0001] 00:10:00 PreventUserIdleSystemSleep named: "com.apple.audio"
"""


def test_macos_assertions_as_pmset_tells():
    assert assertion_words(ASSERTIONS.format(0)) == ""
    assert assertion_words(ASSERTIONS.format(1)) == "a film, call or presentation keeps it awake"
    assert assertion_words("") == ""


def test_sources_are_asked_now_and_then_and_one_that_breaks_is_silent():
    now, asked = [0.0], []

    def broken() -> str:
        raise OSError("the bus has gone")

    def film() -> str:
        asked.append(now[0])
        return "a film"

    signs = Signs([broken, film], lambda: now[0])
    assert [signs(), signs()] == ["a film", "a film"]
    now[0] = 2.5
    signs()
    assert asked == [0.0, 2.5]


WINDOW = """
    import ctypes, ctypes.util, sys, time
    x = ctypes.CDLL(ctypes.util.find_library("X11"))
    x.XOpenDisplay.restype = x.XDefaultRootWindow.restype = x.XCreateSimpleWindow.restype = ctypes.c_void_p
    x.XInternAtom.restype = ctypes.c_ulong
    p, u, i = ctypes.c_void_p, ctypes.c_ulong, ctypes.c_int
    display = p(x.XOpenDisplay(sys.argv[1].encode()))
    root = u(x.XDefaultRootWindow(display))
    window = u(x.XCreateSimpleWindow(display, root, 0, 0, 10, 10, 0, u(0), u(0)))
    atom = lambda name: x.XInternAtom(display, name, 0)
    def put(where, name, kind, value):
        data = (u * 1)(value)
        x.XChangeProperty(display, where, u(atom(name)), u(kind), 32, 0, data, 1)
    # What a window manager would say.
    put(root, b"_NET_ACTIVE_WINDOW", 33, window.value)
    if sys.argv[2] == "full":
        put(window, b"_NET_WM_STATE", 4, atom(b"_NET_WM_STATE_FULLSCREEN"))
    x.XSync(display, 0)
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize(("kind", "seen"), [("full", "something fills its screen"), ("normal", "")])
def test_a_window_that_fills_the_screen_is_seen(display, kind, seen):
    source = X11Fullscreen(display)
    assert source() == ""
    window = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WINDOW), display, kind],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert window.stdout is not None
        assert window.stdout.readline() == "ready\n"
        assert source() == seen
    finally:
        window.communicate(timeout=BOUND)
    # The window that is named as active is gone: Xlib's error ends nobody.
    assert source() == ""

"""The process that capsules are forked from: it has imported what tasks need and then does nothing else.

A fork of it is a warm spare within milliseconds, where a fresh interpreter takes most of a second. It has one thread
and no state, so its forks start clean. It is every capsule's parent: it reaps them, ends what they leave behind, and
reports how they ended. It ends with its worker, and they end with it.

On its control socket it receives one byte per wanted capsule with the capsule's channel as a passed descriptor, or
one that tells it to import more; it sends one line of JSON per ended capsule.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
from typing import NoReturn

from . import preloading
from .processes import adopt_orphans, children_of, die_with_parent, end_children, signal_group

FORK, LATER = b"f", b"l"
"""What it is told: to fork a capsule, or to import what few tasks need."""
SWEEP_SECONDS = 10.0
"""How long the end of everything below may take."""


def main() -> None:
    """Serve as a worker's zygote; the arguments are the control socket's descriptor and the worker's process id."""
    # Not killed with its worker but woken, in case it was stopped: it then sees its socket's end, and sweeps.
    die_with_parent(int(sys.argv[2]), signal.SIGCONT)
    adopt_orphans()
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    preloading.load(preloading.first())
    preloading.later()  # read here, so that forks need not
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    _serve(control)


def _serve(control: socket.socket) -> None:
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    capsules: set[int] = set()
    while True:
        ready, _, _ = select.select([control.fileno(), woken], [], [])
        if woken in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(woken, 4096)
            _reap(control, capsules)
        if control.fileno() in ready:
            try:
                asked, descriptors, _, _ = socket.recv_fds(control, 1, 1)
            except ConnectionError:
                # The worker died with one of our reports unread: the kernel then says reset where it else says end.
                asked = b""
            if not asked:
                break
            if asked == LATER:
                preloading.load(preloading.later())
            else:
                capsules.add(_fork(control, descriptors[0], (woken, wake)))
    _sweep(capsules)


def _sweep(capsules: set[int]) -> None:
    """End all capsules and whatever they started, also what has left their groups."""
    for capsule in capsules:
        signal_group(capsule, signal.SIGKILL)
    end_children(SWEEP_SECONDS)


def _fork(control: socket.socket, channel: int, pipe: tuple[int, int]) -> int:
    parent = os.getpid()
    capsule = os.fork()
    if capsule == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        control.close()
        os.close(pipe[0])
        os.close(pipe[1])
        _be_capsule(parent, socket.socket(fileno=channel))
    os.close(channel)
    with contextlib.suppress(OSError):
        os.setpgid(capsule, capsule)
    return capsule


def _be_capsule(zygote: int, channel: socket.socket) -> NoReturn:
    from .capsule_process import serve

    code = 1
    try:
        os.setpgid(0, 0)
        die_with_parent(zygote)
        adopt_orphans()
        channel.set_inheritable(False)
        if "numpy.random" in sys.modules:
            # A fork inherits the generator's state; without this every capsule would draw the same numbers.
            import numpy as np

            np.random.seed()
        serve(channel)
        code = 0
    except BaseException:  # nothing may unwind into the zygote's own frames
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(code)


def _reap(control: socket.socket, capsules: set[int]) -> None:
    """Report ended capsules, and end what they left behind: their group, and whatever had left the group."""
    while True:
        try:
            process, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if process == 0:
            break
        if process not in capsules:
            continue
        capsules.discard(process)
        signal_group(process, signal.SIGKILL)
        ended = {
            "pid": process,
            "code": os.waitstatus_to_exitcode(status),
            "cpu": usage.ru_utime + usage.ru_stime,
        }
        with contextlib.suppress(OSError):  # the worker may be closing; then its end of the socket says so too
            control.sendall(json.dumps(ended).encode() + b"\n")
    for process in children_of(os.getpid()):
        if process not in capsules:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)


if __name__ == "__main__":
    main()

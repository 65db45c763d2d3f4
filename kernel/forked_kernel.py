"""Starts a notebook's kernel on a node by a fork, where the process that would start it has its modules already.

A fresh interpreter needs most of a second of CPU to import IPython's kernel; a fork needs a few milliseconds. What
the forking process is beside that (a task in a capsule) must not reach the kernel: the child gives up its descriptors,
and the modules that hold such state are forgotten there and imported anew when they are wanted.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from jupyter_client.provisioning.local_provisioner import LocalProvisioner

OWN_INTERPRETER = re.compile(r"python(3(\.\d+)?)?")
"""What a kernelspec may call the interpreter that runs it."""
SETS_UP_TASKS = frozenset({"computemesh", "dask", "distributed"})
"""Packages whose modules know of the task that forks."""


def forkable(command: Sequence[str]) -> list[str] | None:
    """Return the arguments of an IPython kernel that `command` starts with this interpreter; None for any other."""
    if not command:
        return None
    own = command[0] == sys.executable or OWN_INTERPRETER.fullmatch(command[0])
    options = [word for word in command[1:3] if word.startswith("-X")]
    rest = list(command[1 + len(options) :])
    if not own or rest[:2] != ["-m", "ipykernel_launcher"]:
        return None
    return rest[2:]


class ForkedKernel(LocalProvisioner):
    """Starts kernels like jupyter_client's own provisioner, by a fork where it can."""

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        """Start the kernel; called by jupyter_client."""
        arguments = forkable(cmd) if hasattr(os, "fork") else None
        if arguments is None:
            return await super().launch_kernel(cmd, **kwargs)
        self.process = Forked.start(arguments, kwargs["env"], str(kwargs.get("cwd") or "."))
        self.pid = self.pgid = self.process.pid
        self.cwd = kwargs.get("cwd")
        return self.connection_info


class Forked:
    """A forked child, with what jupyter_client asks of a `subprocess.Popen`."""

    stdin = stdout = stderr = None

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    @classmethod
    def start(cls, arguments: Sequence[str], environment: Mapping[str, str], folder: str) -> Forked:
        """Fork a kernel that works in `folder`."""
        pid = os.fork()
        if pid == 0:
            _be_kernel(arguments, environment, folder)
        return cls(pid)

    def poll(self) -> int | None:
        """Return the exit code once it has ended."""
        if self.returncode is None:
            with contextlib.suppress(ChildProcessError):
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return the exit code.

        Raises:
            subprocess.TimeoutExpired: it has not ended after `timeout` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("the kernel", timeout or 0.0)
            time.sleep(0.01)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it is still there."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


def _be_kernel(arguments: Sequence[str], environment: Mapping[str, str], folder: str) -> NoReturn:
    parent = os.getppid()
    code = 1
    try:
        os.setsid()
        _give_up_descriptors()
        _forget_the_task()
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        sys.argv = ["ipykernel_launcher", *arguments]
        from ipykernel.kernelapp import IPKernelApp

        # By this the kernel notices the end of its parent.
        app = IPKernelApp.instance(parent_handle=parent)
        app.initialize(list(arguments))
        app.start()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # nothing may unwind into the frames of the task
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(BaseException):
            atexit._run_exitfuncs()
        os._exit(code)


def _give_up_descriptors() -> None:
    """Let all but the standard streams lead nowhere.

    They are not closed: their numbers would be given out anew, and closed by objects of the task that believe them
    theirs.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    for number in [int(entry.name) for entry in Path("/dev/fd").iterdir()]:
        if number > 2:
            with contextlib.suppress(OSError):  # the listing's own is closed by now
                os.fstat(number)
                os.dup2(nothing, number, inheritable=False)


def _forget_the_task() -> None:
    atexit._clear()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    asyncio._set_running_loop(None)
    asyncio.set_event_loop(asyncio.new_event_loop())
    for name in list(sys.modules):
        if name.partition(".")[0] in SETS_UP_TASKS:
            del sys.modules[name]
    if "numpy.random" in sys.modules:
        # A fork inherits the generator's state; two kernels of one task would draw the same numbers.
        sys.modules["numpy.random"].seed()

"""From a bare Python to a running demo or a passing test suite, without root, make or Debian's venv package.

    python3 bootstrap.py demo        install into .venv, start a driver and three nodes, run the quickstart notebook
    python3 bootstrap.py test        install into .venv, pass the tests; arguments after `test` go to pytest
    python3 bootstrap.py install     install into .venv only

Standard library only, and readable by old Pythons, since its first job is to find a new enough one.
"""

import glob
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
VENV = os.environ.get("COMPUTEMESH_VENV") or os.path.join(HERE, ".venv")
OLDEST = (3, 11)
NEWER = ("python3.13", "python3.12", "python3.11", "python3.14")

SYSTEM_PACKAGES = {
    # command that proves it: Debian package
    "Xvfb": "xvfb",
    "xdotool": "xdotool",
    "ip": "iproute2",
    "dbus-daemon": "dbus-daemon",
    "chromium": "chromium",
    "node": "nodejs",
}
SYSTEM_LIBRARIES = {"libXss.so.1": "libxss1"}


def say(text):
    print("\033[1m==>\033[0m " + text if sys.stdout.isatty() else "==> " + text, flush=True)


def fail(text):
    sys.exit("Error: " + text)


def use_new_enough_python():
    if sys.version_info[:2] >= OLDEST:
        return
    for name in NEWER:
        found = shutil.which(name)
        if found and subprocess.call([found, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]) == 0:
            os.execv(found, [found, os.path.abspath(__file__)] + sys.argv[1:])
    fail("this is Python %d.%d, and no Python 3.11 or newer is on the PATH: install one" % sys.version_info[:2])


def venv_python():
    folder = "Scripts" if os.name == "nt" else "bin"
    return os.path.join(VENV, folder, "python.exe" if os.name == "nt" else "python")


def has_pip(python):
    return (
        subprocess.call([python, "-m", "pip", "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0
    )


def make_venv():
    """Make the virtual environment with pip in it, by the first way that works here."""
    python = venv_python()
    if os.path.exists(python) and has_pip(python):
        return
    say("Making a virtual environment in " + VENV)
    shutil.rmtree(VENV, ignore_errors=True)
    try:
        import ensurepip  # noqa: F401 - Debian takes it out of Python

        if subprocess.call([sys.executable, "-m", "venv", VENV]) == 0 and has_pip(python):
            return
        shutil.rmtree(VENV, ignore_errors=True)
    except ImportError:
        pass
    subprocess.check_call([sys.executable, "-m", "venv", "--without-pip", VENV])
    for way in (pip_of_system, pip_of_debian_archive):
        if way(python) and has_pip(python):
            return
    fail(
        "this Python brings no pip (Debian takes it out), and none could be found on this machine.\n"
        "Install it once, for example with: sudo apt-get install python3-venv"
    )


def pip_of_system(python):
    """Let a pip that is already on this machine install itself into the environment."""
    candidates = [[sys.executable, "-m", "pip"]] + [[found] for found in map(shutil.which, ("pip3", "pip")) if found]
    for pip in candidates:
        command = pip + ["--python", python, "install", "--quiet", "pip"]
        if subprocess.call(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0:
            return True
    return False


def pip_of_debian_archive(python):
    """Download Debian's pip wheel as an ordinary user: apt with state folders of our own, dpkg-deb to unpack it."""
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        return False
    say("This Python brings no pip: fetching Debian's pip package, without installing it")
    with tempfile.TemporaryDirectory() as folder:
        for part in ("lists/partial", "cache/archives/partial"):
            os.makedirs(os.path.join(folder, part))
        options = ["-o", "Dir::State::lists=" + folder + "/lists", "-o", "Dir::Cache=" + folder + "/cache"]
        options += ["-o", "APT::Sandbox::User=root"]
        quiet = {"cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        if subprocess.call(["apt-get", "download", "python3-pip-whl"], **quiet) != 0:
            subprocess.call(["apt-get"] + options + ["update"], **quiet)
            subprocess.call(["apt-get"] + options + ["download", "python3-pip-whl"], **quiet)
        for package in glob.glob(os.path.join(folder, "python3-pip-whl_*.deb")):
            subprocess.check_call(["dpkg-deb", "-x", package, os.path.join(folder, "unpacked")])
        for wheel in glob.glob(os.path.join(folder, "unpacked/usr/share/python-wheels/pip-*.whl")):
            # A wheel is a zip archive, and Python runs a module from one.
            return subprocess.call([python, wheel + "/pip", "install", "--quiet", "--no-index", wheel]) == 0
    return False


def install(extra):
    make_venv()
    stamp = os.path.join(VENV, "computemesh-" + extra)
    with open(os.path.join(HERE, "pyproject.toml")) as file:
        wanted = HERE + "\n" + file.read()
    if os.path.exists(stamp) and open(stamp).read() == wanted:
        link_panel()
        return
    say("Installing ComputeMesh and what it needs (the first time takes a minute or two)")
    command = [venv_python(), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-e"]
    if subprocess.call(command + [HERE + "[" + extra + "]"]) != 0:
        fail("the installation failed; the lines above say why")
    if run(["-m", "computemesh", "kernelspec", "install", "--sys-prefix"], quiet=True) != 0:
        fail('the Jupyter kernel "Python (ComputeMesh)" could not be installed')
    link_panel()
    with open(stamp, "w") as file:
        file.write(wanted)


def link_panel():
    """Lay JupyterLab's panel where Jupyter looks: an editable installation brings the code alone, `pip install .` both.

    Links where the system has them, so that what is built anew is seen at once.
    """
    ours = os.path.join(HERE, "jupyterlab_ext")
    for source, target in (
        (os.path.join(ours, "labextension"), "share/jupyter/labextensions/computemesh-lab"),
        (
            os.path.join(ours, "jupyter_server_config", "computemesh.json"),
            "etc/jupyter/jupyter_server_config.d/computemesh.json",
        ),
    ):
        target = os.path.join(VENV, *target.split("/"))
        if os.path.realpath(target) == os.path.realpath(source):
            continue
        if os.path.isdir(target) and not os.path.islink(target):
            shutil.rmtree(target)
        elif os.path.lexists(target):
            os.unlink(target)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        try:
            os.symlink(source, target)
        except OSError:
            (shutil.copytree if os.path.isdir(source) else shutil.copy)(source, target)


def install_system_packages():
    """Install what the tests drive and pip cannot bring; says so, since it needs root."""
    import ctypes

    missing = [package for command, package in SYSTEM_PACKAGES.items() if not shutil.which(command)]
    for library, package in SYSTEM_LIBRARIES.items():
        try:
            ctypes.CDLL(library)
        except OSError:
            missing.append(package)
    if not missing:
        return
    say("The tests need system packages that are missing: " + " ".join(missing))
    if not shutil.which("apt-get"):
        fail("install them with your system's package manager, then run this again")
    root = [] if os.geteuid() == 0 else ["sudo"]
    if root and not shutil.which("sudo"):
        fail("run as root: apt-get install " + " ".join(missing))
    say("Installing them as root: apt-get install " + " ".join(missing))
    quiet = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    get = root + ["apt-get", "-q"]
    if subprocess.call(get + ["install", "-y", "--no-install-recommends"] + missing, env=quiet) != 0:
        subprocess.call(get + ["update"], env=quiet)
        if subprocess.call(get + ["install", "-y", "--no-install-recommends"] + missing, env=quiet) != 0:
            fail("apt-get could not install " + " ".join(missing))


def run(arguments, quiet=False):
    with open(os.devnull, "w") as nowhere:
        return subprocess.call([venv_python()] + arguments, cwd=HERE, stdout=nowhere if quiet else None)


def main(arguments):
    what = arguments[0] if arguments else "demo"
    if what == "install":
        install("demo")
        return 0
    if what == "demo":
        install("demo")
        return run([os.path.join("notebooks", "demo.py")] + arguments[1:])
    if what == "test":
        install_system_packages()
        install("test")
        for check in (["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"]):
            say(" ".join(check))
            if run(["-m"] + check) != 0:
                return 1
        say("pytest")
        return run(["-m", "pytest"] + arguments[1:])
    fail("unknown: " + what + ". Give demo, test or install")


if __name__ == "__main__":
    use_new_enough_python()
    sys.exit(main(sys.argv[1:]))

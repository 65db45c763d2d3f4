"""``python -m computemesh``: the ``mesh`` command, where scripts are not on the PATH."""

from .cli import main

main()

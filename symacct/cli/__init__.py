"""The command line: parse, call, print. No logic of its own.

Exit codes: 0 done; 1 the model cannot be traced, or a check failed; 2 the command is wrong
(an argument, a file, a name, a size); 3 ops without a rule under --strict.
"""

import warnings

from symacct.cli import costs, devices, exploring, pictures, questions, reporting  # noqa: F401  # have the commands
from symacct.cli.app import app

__all__ = ["app", "main"]


def main() -> None:
    """The entry point of the ``symacct`` command."""
    # torch says so on import where NumPy is absent, which symacct does not need.
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
    app()

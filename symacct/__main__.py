"""``python -m symacct``."""

from symacct.cli import main

main()

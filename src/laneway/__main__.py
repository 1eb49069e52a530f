"""`python -m laneway`: the same as the command `laneway`."""

from .cli import main

main()

"""`python -m dreamproof.cli` is the same as `dreamproof`."""

from dreamproof.cli.main import main

main()

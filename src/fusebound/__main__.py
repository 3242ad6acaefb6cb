"""`python -m fusebound`."""

from fusebound.cli.main import main

main()

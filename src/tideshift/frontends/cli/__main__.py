"""`python -m tideshift.frontends.cli` is the same as the console script."""

from tideshift.frontends.cli import main

main()

"""`python -m tideshift` is the same as the console script."""

from tideshift.frontends.cli import main

if __name__ == "__main__":
    main()

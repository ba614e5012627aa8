"""`python -m otafl`: the command line."""

from otafl.cli import main

if __name__ == "__main__":
    main()

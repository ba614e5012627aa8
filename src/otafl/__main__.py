"""`python -m otafl`: the command line."""

from otafl.cli import process

if __name__ == "__main__":
    process()

"""`otafl`, `python -m otafl`: the command line, which a signal can end from the first moment on."""

from otafl.runs.interrupts import immediate_stop_to_the_end


def process() -> None:
    """`otafl.cli.process`; what it imports takes long enough for Ctrl-C to meet it there, and to end in a traceback."""
    immediate_stop_to_the_end()
    from otafl import cli

    cli.process()


if __name__ == "__main__":
    process()

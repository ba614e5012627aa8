"""`python -m otafl`, and `otafl`: the command line."""


def process() -> None:
    """As a whole process: Ctrl-C is heard before the rest is imported, which takes a moment that it may fall into."""
    from otafl.runs.interrupts import immediate_stop_to_the_end

    immediate_stop_to_the_end()
    from otafl import cli

    cli.process()


if __name__ == "__main__":
    process()

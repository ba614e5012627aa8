"""What a command shows, as text."""

import io
from collections.abc import Callable
from typing import Any

from rich.console import Console


def printed(show: Callable[[Any, Console], None], report: Any, width: int = 140) -> str:
    screen = io.StringIO()
    show(report, Console(file=screen, width=width))
    return screen.getvalue()

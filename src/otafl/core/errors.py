"""The few ways in which otafl refuses to go on, each with the exit code the command line gives it."""

LONGEST = 300  # letters of somebody else's words in a message of ours


class OtaflError(Exception):
    """Base of every refusal that a user can act on; its text is one clear message, never a traceback."""

    exit_code = 1


class InputError(OtaflError, ValueError):
    """An input breaks a stated rule. The message gives the name, the value and the rule."""

    exit_code = 2


class DataMissing(InputError):
    """A data set was not found; the message says where it was looked for and what to do."""


class Infeasible(OtaflError):
    """Nothing meets the stated targets. `report` holds the certificate and the nearest relaxations."""

    exit_code = 3

    def __init__(self, message: str, report: object = None):
        super().__init__(message)
        self.report = report


class BudgetExceeded(OtaflError):
    """The next round would cost more privacy than is left."""

    exit_code = 4


class PrivacyViolation(OtaflError):
    """A realised quantity (norm, amplitude, noise, batch) left the bound that was charged for it."""

    exit_code = 5


class Interrupted(OtaflError):
    """The run was stopped from outside after a checkpoint."""

    exit_code = 130


class RunError(OtaflError):
    """A run stopped itself: the model was not finite, an energy limit would have been broken."""


class Diverged(RunError):
    """The model of the scheme `label` was not finite."""

    def __init__(self, message: str, label: str = ""):
        super().__init__(message)
        self.label = label


def first_line(problem: BaseException) -> str:
    """What somebody else's function says of its failure, for a message of ours: some quote what they read at length."""
    line = (str(problem).strip().splitlines() or [type(problem).__name__])[0]
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 3]}..."

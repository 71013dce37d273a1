"""The one error family: what went wrong, in one line, and what to do about it."""

from __future__ import annotations

import shlex

from advisor.interpreter import this_python


class AdvisorError(Exception):
    """A failure a person can act on; the command line prints it as one line, exit code 1.

    ``message`` names the file, line or key; ``hint`` says what to do.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class InputError(AdvisorError):
    """A file or value the user gave does not make sense."""


class UnknownNameError(InputError):
    """A name, option or value was given that does not exist; exit code 2."""

    exit_code = 2


class UsageError(AdvisorError):
    """The command was called the wrong way; exit code 2."""

    exit_code = 2


class LaboratoryError(UsageError):
    """Something is asked for that the laboratory has, where it is not installed; exit code 2.

    The message begins with the words that ask for it, so that ``advisor`` stands before it.
    """

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}"


class MissingExtraError(AdvisorError):
    """A package is not installed that only some work needs; the hint says how to install it."""

    def __init__(self, purpose: str, package: str) -> None:
        super().__init__(
            f"{purpose} {package}, which is not installed", hint=install_command(package)
        )


def install_command(*packages: str) -> str:
    """Return the command that installs packages where this advisor is installed.

    With ``-P``, so that pip is never taken from the folder where somebody types it.
    """
    return f"{shlex.quote(str(this_python()))} -P -m pip install {' '.join(packages)}"


class RefusedError(AdvisorError):
    """Refused by policy, or nothing to do; exit code 3."""

    exit_code = 3


class StoreError(AdvisorError):
    """The store is missing, locked, corrupt, full or of another version."""


class OlderStoreError(StoreError):
    """The store's schema is of an earlier version; whoever may write it brings it up to date."""


class MovedStoreError(StoreError):
    """The store was moved to ``target``, in the move of this number."""

    def __init__(self, message: str, *, hint: str, move: str, target: str) -> None:
        super().__init__(message, hint=hint)
        self.move = move
        self.target = target


class RefusedValueError(StoreError):
    """The database refuses a row: a value breaks a rule of the schema."""


class PublishedCopyError(StoreError):
    """The store is a published copy, which is only read; exit code 3."""

    exit_code = 3


class SchedulerError(AdvisorError):
    """A scheduler's command is missing or failed."""


class MeterError(AdvisorError):
    """A meter that was asked for cannot be read."""

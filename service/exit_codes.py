"""How a command ends: one exit code per kind of outcome, and the error that carries it. Imports nothing heavy."""

from enum import IntEnum


class ExitCode(IntEnum):
    """The same for every command, so that scripts can act on them."""

    DONE = 0
    NEGATIVE = 1
    WRONG_USAGE = 2
    NO_EVIDENCE = 3
    PROBE_ENDED = 4
    UNREACHABLE = 5


class CommandError(Exception):
    """A command cannot do what was asked; the message says why and what to do.

    NothingMeasuredError, RequestRefusedError and ServerUnreachableError (service.client) and
    those of the embedded service (service.home, service.embedded, service.server) and of a worker's start
    (workers.detect, workers.presence, workers.runtime) are of this kind.
    """

    exit_code = ExitCode.WRONG_USAGE

"""`python -m workers`: the worker process that `breakeven worker` and `breakeven serve` start."""

import argparse
import logging
import sqlite3
import sys

logger = logging.getLogger("workers")


def main() -> None:
    """Work until stopped. What keeps the worker from it is told in one line, and ends it with its exit code."""
    parser = argparse.ArgumentParser(prog="breakeven worker", description="Measure probes on this machine.")
    parser.add_argument("--hardware", metavar="LABEL", help="the label to work for; detected if not given")
    parser.add_argument("--exit-with-stdin", action="store_true", help="stop when stdin ends, as a child process does")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    # Everything else is imported below, so that a half-made installation is told of wherever it shows.
    try:
        sys.exit(_work(arguments.hardware, exit_with_stdin=arguments.exit_with_stdin))
    except ImportError as error:
        what = f"the module {error.name!r} is missing" if isinstance(error, ModuleNotFoundError) else str(error)
        logger.error("%s in %s: this installation is not complete, `make clean demo` makes it again", what, sys.prefix)
        sys.exit(2)


def _work(hardware: str | None, *, exit_with_stdin: bool) -> int:
    from sqlalchemy.exc import SQLAlchemyError

    from service.database_trouble import told
    from service.exit_codes import CommandError, ExitCode
    from service.settings import settings
    from workers.runtime import run_worker

    try:
        run_worker(settings(), hardware, exit_with_stdin=exit_with_stdin)
    except CommandError as error:
        logger.error("%s", error)
        return error.exit_code
    except (SQLAlchemyError, sqlite3.Error) as error:
        logger.error("%s", told(error, settings()) or error)
        return ExitCode.UNREACHABLE
    except OSError as error:
        logger.error(
            "this worker cannot keep its files, set BREAKEVEN_HOME to a folder that it may write to: %s", error
        )
        return ExitCode.WRONG_USAGE
    return ExitCode.DONE


if __name__ == "__main__":
    main()

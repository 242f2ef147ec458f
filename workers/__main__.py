"""`python -m workers`: the worker process that `breakeven worker` and `breakeven serve` start."""

import argparse
import logging
import sys

from sqlalchemy.exc import SQLAlchemyError

from service.exit_codes import CommandError, ExitCode
from service.settings import settings
from workers.detect import MixedAcceleratorsError
from workers.presence import AcceleratorTakenError, OtherHostError
from workers.runtime import SchemaOutdatedError, run_worker


def main() -> None:
    parser = argparse.ArgumentParser(prog="breakeven worker", description="Measure probes on this machine.")
    parser.add_argument("--hardware", metavar="LABEL", help="the label to work for; detected if not given")
    parser.add_argument("--exit-with-stdin", action="store_true", help="stop when stdin ends, as a child process does")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", stream=sys.stderr)
    try:
        run_worker(settings(), arguments.hardware, exit_with_stdin=arguments.exit_with_stdin)
    except (AcceleratorTakenError, CommandError, MixedAcceleratorsError, OtherHostError, SchemaOutdatedError) as error:
        logging.getLogger("workers").error("%s", error)
        sys.exit(ExitCode.WRONG_USAGE)
    except SQLAlchemyError as error:
        logging.getLogger("workers").error("the database cannot be reached, check BREAKEVEN_DATABASE_URL: %s", error)
        sys.exit(ExitCode.UNREACHABLE)


if __name__ == "__main__":
    main()

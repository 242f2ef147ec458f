"""`breakeven`, which is `python -m service`. Says so if the installation that it is part of is not complete."""

import sys


def main() -> None:
    """Run the command line. A module that is missing or broken ends it with one line and exit code 2."""
    # Commands import what they need when they run, so a half-made installation shows anywhere in them.
    try:
        from service.cli import main as run

        run()
    except ImportError as error:
        what = f"the module {error.name!r} is missing" if isinstance(error, ModuleNotFoundError) else str(error)
        sys.stderr.write(
            f"breakeven: {what} in {sys.prefix}: this installation is not complete, `make clean demo` makes it again "
            "(or pip, if pip made it)\n"
        )
        sys.exit(2)


if __name__ == "__main__":
    main()

"""The command line. Each module holds the commands of one purpose and imports what they need when they run."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from service.cli import advice, demo, probe, processes
from service.exit_codes import CommandError

app = typer.Typer(
    name="breakeven",
    help="At which batch sizes does speculative decoding pay, on your model and your hardware?",
    epilog="Exit codes: 0 done, 1 the answer is negative, 2 wrong usage or input, 3 inconclusive or no evidence, "
    "4 the probe failed or was cancelled, 5 the server cannot be reached.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.command("demo")(demo.run_demo)
app.command("serve")(processes.serve)
app.command("worker")(processes.work)
app.command("probe")(probe.probe)
app.command("advice")(advice.read_advice)


def _print_version(wanted: bool) -> None:
    if wanted:
        from service import __version__

        typer.echo(f"breakeven {__version__}")
        raise typer.Exit


@app.callback()
def _every_command(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def _refuse_broken_characters(arguments: Sequence[str]) -> None:
    """Python keeps bytes of an argument that are no UTF-8 as halves of characters, which nothing can be made of."""
    for argument in arguments:
        if any("\ud800" <= character <= "\udfff" for character in argument):
            raise CommandError(f"the argument {argument!r} is not UTF-8: write it in that encoding")


def main() -> None:
    """Run the command line, and end with the exit code of what came of it."""
    try:
        _refuse_broken_characters(sys.argv[1:])
        app(prog_name="breakeven")
    except CommandError as error:
        typer.echo(f"breakeven: {error}", err=True)
        sys.exit(error.exit_code)

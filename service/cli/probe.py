"""`breakeven probe`: ask for a measurement, and wait for it if wanted."""

from typing import Annotated, Any

import typer

from service.cli import arguments
from service.cli.connection import Connection, JsonOption, ServerOption, connect, say

DEFAULT_DRAFTER = "ngram"
"""The one drafter that suits every model."""


def probe(
    model: Annotated[str, typer.Argument(help="The target: an id or a path, as the engine takes it.")],
    hardware: Annotated[str, typer.Option(metavar="LABEL", help="Where to measure, such as 1xH100-SXM or cpu.")],
    drafter: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METHOD[:DRAFT_MODEL][,KEY=VALUE...]",
            help="A drafter to try, with the engine's own keys; may be given again. [default: ngram]",
        ),
    ] = None,
    batch_sizes: Annotated[str, typer.Option(metavar="B,B,...", help="Requests that decode together.")] = "1,2,4",
    max_draft_tokens: Annotated[
        int, typer.Option(metavar="K", parser=arguments.whole_number, help="Draft tokens are tried from 1 to this.")
    ] = 5,
    output_tokens: Annotated[
        int, typer.Option(metavar="N", parser=arguments.whole_number, help="Tokens that each request emits at most.")
    ] = 128,
    prompts: Annotated[
        str, typer.Option(metavar="NAME|FILE.jsonl", help="Prompts: a built-in set, or one JSON object a line.")
    ] = "demo",
    context_lengths: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Prompt lengths to measure at. [default: as the prompts are]")
    ] = None,
    revision: Annotated[str | None, typer.Option(metavar="R", help="The target's revision.")] = None,
    dtype: Annotated[str | None, typer.Option(metavar="D", help="The target's dtype.")] = None,
    quantization: Annotated[str | None, typer.Option(metavar="Q", help="The target's quantization.")] = None,
    tensor_parallel: Annotated[
        int, typer.Option(metavar="N", parser=arguments.whole_number, help="Accelerators that share each layer.")
    ] = 1,
    temperature: Annotated[float, typer.Option(metavar="T", parser=arguments.number, help="0 decodes greedily.")] = 0.0,
    engine_arg: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="An argument of the engine; may be given again.")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Time to measure in, such as 90s, 20m, 1h. [default: the service's]"),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure even if it was measured before.")] = False,
    relaunch: Annotated[
        bool, typer.Option("--relaunch", help="Launch the engine anew for each K, to hold the one load against it.")
    ] = False,
    wait_for_worker: Annotated[
        bool, typer.Option("--wait-for-worker", help="Queue it even if no live worker works for LABEL.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Show the progress, then the advice.")] = False,
    server: ServerOption = None,
    json: JsonOption = False,
) -> None:
    """Measure where speculation pays for MODEL. Prints the probe's id, or with --wait its advice."""
    lengths = None if context_lengths is None else arguments.whole_numbers(context_lengths, "--context-lengths")
    request: dict[str, Any] = {
        "target": {
            "model": model,
            "tensor_parallel": tensor_parallel,
            "engine_args": arguments.key_values(engine_arg or ()),
            **_given(revision=revision, dtype=dtype, quantization=quantization),
        },
        "hardware": hardware,
        "drafters": [arguments.drafter(each) for each in drafter or [DEFAULT_DRAFTER]],
        "batch_sizes": arguments.whole_numbers(batch_sizes, "--batch-sizes"),
        "max_draft_tokens": max_draft_tokens,
        "workload": {
            "prompts": arguments.prompts(prompts),
            "output_tokens": output_tokens,
            "temperature": temperature,
            **_given(context_lengths=lengths),
        },
        **_given(budget_seconds=None if budget is None else arguments.seconds(budget, "--budget")),
        "fresh": fresh,
        "relaunch": relaunch,
        # Sent only if it is wanted, so that a service of an older release takes the request too.
        **({"wait_for_worker": True} if wait_for_worker else {}),
    }
    with connect(server, worker=True) as connection:
        raise typer.Exit(_ask(connection, request, wait=wait, json=json))


def _ask(connection: Connection, request: dict[str, Any], *, wait: bool, json: bool) -> int:
    from service.cli.following import follow, how_to_go_on, tell_of_workers

    probe, created = connection.client.create_probe(request)
    say(f"probe {probe.id}: {probe.status}" + ("" if created else "; it was asked for before (--fresh measures again)"))
    if wait:
        return follow(connection, probe, created=created, json=json)
    if connection.temporary and probe.status in ("queued", "running"):
        say("waiting for it, although --wait is not given: without `breakeven serve` nobody else would measure it")
        return follow(connection, probe, created=created, json=json)
    tell_of_workers(connection.client, probe)
    say(how_to_go_on(connection, probe.id))
    typer.echo(probe.model_dump_json(indent=2) if json else probe.id)
    return 0


def _given(**values: Any) -> dict[str, Any]:
    """Those that were given: the service has its own defaults."""
    return {name: value for name, value in values.items() if value is not None}

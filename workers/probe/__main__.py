"""The process of engines: a specification per line on stdin, measurements as JSON lines on stdout.

Importing an engine takes longer than loading a small model. So this process imports it once, and forks a child for
each arm: the child holds the accelerator, and the next one starts from the same untouched import. An arm that must
share nothing is run in this process itself, which then ends with it; so is one whose engine's import left threads or
a GPU context behind, which no fork survives.

Everything here dies with the worker: stdin stays open as long as it lives, and at its end each process kills its own
group, engine processes included.
"""

import gc
import importlib
import json
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from typing import IO, Any, NoReturn

from workers.probe.arms import run_arm
from workers.probe.engine import Engine, EngineError
from workers.probe.first_victim import become_first_victim
from workers.probe.refusals import check_launch
from workers.probe.spec import ArmSpec

WATCH_MS = 100
"""How soon the thread that watches the worker during an import ends after it."""

ENGINE_MODULES: Mapping[str, Sequence[str]] = {
    "simulated": ("workers.probe.simulate",),
    "vllm": ("workers.probe.vllm_engine", "vllm.entrypoints.llm", "vllm.v1.engine.core", "vllm.v1.worker.gpu_worker"),
}


def main() -> None:
    # Messages go to the pipe that stdout was; whatever a library prints goes to stderr.
    messages = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    while line := sys.stdin.buffer.readline():
        spec = ArmSpec.from_json(json.loads(line))
        try:
            check(spec)
        except EngineError as error:
            messages.write(json.dumps({"kind": "failed", "error": str(error)}) + "\n")
            continue
        with dying_with_worker():
            import_seconds = import_engine(spec.engine)
        if not spec.apart and not can_fork():
            sys.stderr.write("the import of the engine left threads or a GPU context: it cannot be shared by arms\n")
        if spec.apart or not can_fork():
            measure(spec, messages, import_seconds)
        child = os.fork()
        if child == 0:
            os.setsid()
            measure(spec, messages, import_seconds)
        code = wait_for(child)
        # On a line of its own, also where a child was killed in the middle of one.
        with suppress(BrokenPipeError):  # The worker is gone; the next line will not come.
            messages.write("\n" + json.dumps({"kind": "exited", "code": code}) + "\n")
    # Not the interpreter's own end, which takes a second to put away what an engine imports.
    os._exit(0)


def wait_for(child: int) -> int:
    """The exit code of the child that runs an arm, which is killed if the worker goes: a stopped one would stay."""
    events = _hang_up_of_worker()
    its_end = os.pidfd_open(child)
    events.register(its_end, select.POLLIN)
    if its_end not in dict(events.poll()):
        for group in (child, os.getpgrp()):
            with suppress(ProcessLookupError):  # A child just forked has no group of its own yet.
                os.killpg(group, signal.SIGKILL)
    os.close(its_end)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def check(spec: ArmSpec) -> None:
    """Raise EngineError for what can be seen without the engine, whose import takes so long."""
    if spec.engine != "vllm":
        return
    try:
        for launch in (spec.launch, *spec.launches_to_come):
            check_launch(launch)
    except OSError as error:
        raise EngineError(f"the model's files cannot be read on this worker: {error}") from error


def import_engine(name: str) -> float:
    """Import what the engine of this name is made of; the seconds it took, next to none the second time.

    What cannot be imported is left to `load_engine`, whose error says what to do.
    """
    started = time.perf_counter()
    with suppress(ImportError):
        for module in ENGINE_MODULES[name]:
            importlib.import_module(module)
    return time.perf_counter() - started


def can_fork() -> bool:
    """Whether a fork of this process can run an engine: it has one thread, and no GPU context."""
    torch = sys.modules.get("torch")
    return len(os.listdir("/proc/self/task")) == 1 and not (torch and torch.cuda.is_initialized())


def load_engine(spec: ArmSpec) -> Engine:
    """The engine that the specification names."""
    if spec.engine == "simulated":
        from workers.probe.simulate import SimulatedEngine

        return SimulatedEngine(spec.launch)
    from workers.probe.vllm_engine import VllmEngine

    return VllmEngine(spec.launch, spec.launches_to_come)


def measure(spec: ArmSpec, messages: IO[str], import_seconds: float) -> NoReturn:
    """Load the engine, measure the arm, and end the process."""

    def emit(kind: str, fields: Mapping[str, Any]) -> None:
        messages.write(json.dumps({"kind": kind, "at": time.time(), **fields}) + "\n")

    emit("child", {"pid": os.getpid()})
    threading.Thread(target=_watch_worker, daemon=True).start()
    become_first_victim()
    gc.freeze()
    code = 0
    try:
        engine = load_engine(spec)
        engine.description = replace(
            engine.description, import_seconds=import_seconds + engine.description.import_seconds
        )
        emit("loaded", asdict(engine.description))
        run_arm(spec, engine, emit)
        emit("finished", {})
    except EngineError as error:
        emit("failed", {"error": str(error)})
    except BaseException:
        traceback.print_exc()
        code = 1
    # The engine's own shutdown can take seconds and has nothing left to save.
    messages.flush()
    sys.stderr.flush()
    os._exit(code)


@contextmanager
def dying_with_worker() -> Iterator[None]:
    """End this process and its group if the worker lets go of stdin during the block. No thread of it stays."""
    over = threading.Event()
    thread = threading.Thread(target=_watch_worker, args=(over,), daemon=True)
    thread.start()
    yield
    over.set()
    thread.join()


def _watch_worker(over: threading.Event | None = None) -> None:
    worker = _hang_up_of_worker()
    while not worker.poll(WATCH_MS if over else None):
        if over and over.is_set():
            return
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _hang_up_of_worker() -> select.poll:
    worker = select.poll()
    worker.register(sys.stdin.fileno(), 0)  # for nothing but its hanging up
    return worker


if __name__ == "__main__":
    main()

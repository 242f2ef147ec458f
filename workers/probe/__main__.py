"""The child process of an arm: a specification on the first line of stdin, measurements as JSON lines on stdout.

It holds the accelerator and nothing else, and it dies with its worker: stdin stays open as long as the worker lives,
and at its end the whole process group is killed, engine processes included.
"""

import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from workers.probe.arms import ArmSpec, run_arm
from workers.probe.engine import Engine, EngineError


def load_engine(spec: ArmSpec) -> Engine:
    """The engine that the specification names."""
    if spec.engine == "simulated":
        from workers.probe.simulate import SimulatedEngine

        return SimulatedEngine(spec.launch)
    from workers.probe.vllm_engine import VllmEngine

    return VllmEngine(spec.launch)


def main() -> None:
    # Messages go to the pipe that stdout was; whatever a library prints goes to stderr.
    messages = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def emit(kind: str, fields: Mapping[str, Any]) -> None:
        messages.write(json.dumps({"kind": kind, **fields}) + "\n")

    spec = ArmSpec.from_json(json.loads(sys.stdin.readline()))
    threading.Thread(target=_die_with_worker, daemon=True).start()
    code = 0
    try:
        engine = load_engine(spec)
        emit("loaded", asdict(engine.description))
        run_arm(spec, engine, emit)
        emit("finished", {})
    except EngineError as error:
        emit("failed", {"error": str(error)})
    except Exception:
        traceback.print_exc()
        code = 1
    # The engine's own shutdown can take seconds and has nothing left to save.
    messages.flush()
    sys.stderr.flush()
    os._exit(code)


def _die_with_worker() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main()

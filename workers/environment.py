"""The environment of an arm's child process: on a CPU, what vLLM's own server would set for its engine process.

`vllm serve` on a CPU leaves a physical core to its front end, binds an OpenMP thread to each of the others, and is
documented to need Intel's OpenMP preloaded: without it, vLLM warns of a significant loss with speculation. A probe
runs the engine in one process, where vLLM comes too late to do so itself.
"""

import os
import sys
from pathlib import Path

import psutil


def child_environment(hardware: str) -> dict[str, str]:
    """This process's environment, completed for the engine; what is set already stays as it is."""
    environment = dict(os.environ)
    # NumPy's own BLAS starts its threads when it is imported, and a process with threads cannot be forked. No engine
    # computes with it.
    environment.setdefault("OPENBLAS_NUM_THREADS", "1")
    if hardware != "cpu":
        return environment
    environment.setdefault("OMP_NUM_THREADS", str(engine_threads()))
    intel_openmp = Path(sys.prefix) / "lib" / "libiomp5.so"
    if "LD_PRELOAD" not in environment and intel_openmp.is_file():
        environment["LD_PRELOAD"] = str(intel_openmp)
        # As vLLM sets them: idle threads sleep after 5 ms instead of keeping a core busy.
        environment.setdefault("KMP_BLOCKTIME", "5")
        environment.setdefault("KMP_TPAUSE", "0")
    return environment


def engine_threads() -> int:
    """One thread per physical core that this process may use, less one for the front end; at least one."""
    physical = psutil.cpu_count(logical=False) or 1
    return max(1, min(physical, len(os.sched_getaffinity(0))) - 1)

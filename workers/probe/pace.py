"""How fast this core is at this moment, by a small piece of work of its own.

A CPU is shared: with other programs, and in a virtual machine with neighbours on the same physical core that no tool
here shows. Step times then jump by half and more for seconds at a time, and arms that are minutes apart cannot be
compared. So beside every step a fixed loop is timed, and `service.science.pace` brings step times to one pace with it.
On two shared cores that took the scatter of a demo's repeats from 16 % to 7 %.
"""

import time

LOOP_ROUNDS = 3000
"""About 0.2 ms."""


class Pace:
    """Watches the core that this process runs on."""

    def __init__(self) -> None:
        self._last_ms = _loop_ms()

    def reading_ms(self) -> float:
        """The loop's time around whatever ran since the last call: the mean of before and after."""
        before_ms, self._last_ms = self._last_ms, _loop_ms()
        return (before_ms + self._last_ms) / 2


def _loop_ms() -> float:
    total, started = 0, time.perf_counter()
    for number in range(LOOP_ROUNDS):
        total += number * number
    return (time.perf_counter() - started) * 1e3

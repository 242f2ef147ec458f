"""How a worker that is told to stop and the arm that it measures agree on the moment: after a finished repeat."""

import threading


class StopRequest:
    """Asked for by a signal, looked at between measurements. Used from several threads."""

    def __init__(self) -> None:
        self._made = threading.Event()
        self._engine_is_free = threading.Event()
        self._engine_is_free.set()

    def make(self) -> None:
        """Stop as soon as nothing is lost by it."""
        self._made.set()

    def make_at_once(self) -> None:
        """Stop, whatever is lost by it."""
        self._engine_is_free.set()
        self._made.set()

    @property
    def made(self) -> bool:
        """Whether to stop."""
        return self._made.is_set()

    def wait(self) -> None:
        """Wait until it is made."""
        self._made.wait()

    def measuring(self) -> None:
        """From now on a stop would lose a measurement."""
        if not self.made:
            self._engine_is_free.clear()

    def let_go(self) -> None:
        """The engine is gone, and nothing more will be measured."""
        self._engine_is_free.set()

    def wait_for_engine(self, seconds: float) -> bool:
        """Whether no measurement is under way any more, after at most so many seconds."""
        return self._engine_is_free.wait(seconds)

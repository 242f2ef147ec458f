"""The embedded service as commands start, find, share and leave it; in processes, as a person has them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine

from service.client import Client
from service.home import HomeTakenError, ServiceRecord, hold_home, is_held, read_record, use_home, write_record
from service.server import AddressRefusedError, listening_socket, refuse_other_hosts
from service.settings import Settings
from service.worker_process import WorkerProcess
from tests.service.served import breakeven, finished, heard, queued_probe, run, until

# Locks and records are files of the home, whatever the database.
pytestmark = pytest.mark.sqlite_only

QUESTION = ("advice", "--model", "m", "--hardware", "cpu")
WAITING_CHILD = [sys.executable, "-c", "import sys; print('started', flush=True); sys.stdin.read()"]


@contextmanager
def served(settings: Settings, *arguments: str) -> Iterator[ServiceRecord]:
    """A `breakeven serve --no-worker` with these settings, from its being ready to its end."""
    home = settings.home
    process = breakeven("serve", "--no-worker", "--port", "0", *arguments, settings=settings)
    try:
        yield until(lambda: read_record(home) if process.poll() is None else pytest.fail(str(finished(process))))
    finally:
        process.terminate()
        code, _, err = finished(process)
    assert code == 0, err
    assert not is_held(home)
    assert read_record(home) is None


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A process whose parent has not asked after it yet is dead even so.
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()


def test_a_command_starts_a_service_for_its_own_time(settings: Settings) -> None:
    code, out, err = run(*QUESTION, settings=settings)
    assert (code, out) == (3, ""), err
    assert f"no service runs for {settings.home}: starting one" in err
    assert not is_held(settings.home)
    assert read_record(settings.home) is None


def test_commands_find_the_service_that_runs_and_a_second_one_is_refused(settings: Settings) -> None:
    with served(settings) as record:
        code, _, err = run(*QUESTION, settings=settings)
        assert code == 3
        assert "starting one" not in err
        code, _, err = run("serve", "--no-worker", "--port", "0", settings=settings)
        assert code == 2
        assert f"at {record.url} (process {record.pid})" in err


def test_a_stale_record_is_noticed(settings: Settings) -> None:
    stale = ServiceRecord(url="http://127.0.0.1:1", pid=1, worker=True, while_used=False)
    write_record(settings.home, stale)
    assert not is_held(settings.home)
    with hold_home(settings.home):
        assert is_held(settings.home)
        assert read_record(settings.home) is None
        write_record(settings.home, stale.model_copy(update={"pid": os.getpid()}))
        with pytest.raises(HomeTakenError, match=r"127\.0\.0\.1:1"), hold_home(settings.home):
            pass
    assert read_record(settings.home) is None


def test_the_record_of_another_service_is_left_alone(settings: Settings) -> None:
    other = ServiceRecord(url="http://127.0.0.1:1", pid=1, worker=True, while_used=False)
    with hold_home(settings.home):
        write_record(settings.home, other)  # As of one whose home was made anew under this one's feet.
    assert read_record(settings.home) == other


@pytest.mark.parametrize(
    ("name", "command"),
    [("service.json", ("serve", "--no-worker", "--port", "0")), ("service.log", QUESTION)],
)
def test_a_folder_in_the_place_of_a_file_is_told(settings: Settings, name: str, command: tuple[str, ...]) -> None:
    (settings.home / name).mkdir()
    code, _, err = run(*command, settings=settings)
    assert code == 2
    assert f"cannot be used (Is a directory: {settings.home}/{name})" in err
    assert "Traceback" not in err


def test_commands_share_a_service_that_one_of_them_started(settings: Settings) -> None:
    with use_home(settings.home):
        commands = [breakeven(*QUESTION, settings=settings) for _ in range(3)]
        assert [finished(command)[0] for command in commands] == [3, 3, 3]
        record = read_record(settings.home)
        assert record is not None
        assert record.while_used
        assert alive(record.pid)
    until(lambda: not alive(record.pid), seconds=20)
    assert not is_held(settings.home)


def test_a_service_ends_when_the_command_that_started_it_is_killed(settings: Settings) -> None:
    command = breakeven("probe", "m", "--hardware", "none", "--wait-for-worker", settings=settings)
    record = until(lambda: read_record(settings.home))
    command.kill()
    finished(command)
    until(lambda: not alive(record.pid), seconds=30)
    assert not is_held(settings.home)


def test_an_interrupted_command_cancels_its_probe_and_leaves_no_process(settings: Settings, engine: Engine) -> None:
    command = breakeven("probe", "m", "--hardware", "none", "--wait-for-worker", settings=settings)
    probe_id = until(lambda: queued_probe(engine))
    record = read_record(settings.home)
    assert record is not None
    heard(command, "waiting for it")
    time.sleep(0.5)  # It listens for signals from here on.
    command.send_signal(signal.SIGTERM)
    code, _, err = finished(command)
    assert code == 4, err
    assert "cancelling the probe" in err
    assert not is_held(settings.home)
    assert not alive(record.pid)
    with served(settings) as record, Client(record.url) as client:
        assert client.get_probe(probe_id).status == "cancelled"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "example.org", ""])
def test_other_machines_are_not_let_in(host: str) -> None:
    with pytest.raises(AddressRefusedError, match="no API token"):
        refuse_other_hosts(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_this_machine_is_let_in(host: str) -> None:
    refuse_other_hosts(host)


def test_a_port_that_is_taken_ends_with_2(settings: Settings) -> None:
    with listening_socket("127.0.0.1", 0) as listener:
        code, _, err = run("serve", "--port", str(listener.getsockname()[1]), settings=settings)
    assert code == 2
    assert "choose another with --port" in err
    assert not is_held(settings.home)


def test_a_worker_that_dies_is_started_again(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    with WorkerProcess(log, [sys.executable, "-c", "print('lived', flush=True)"]):
        until(lambda: log.exists() and log.read_text().count("lived") >= 2)


def test_a_worker_that_cannot_be_started_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = tmp_path / "away" / "worker.log"
    with WorkerProcess(log, [sys.executable, "-c", "print('lived', flush=True)"]):
        until(lambda: caplog.messages)
        log.parent.mkdir()
        until(lambda: log.exists() and "lived" in log.read_text())
    assert caplog.messages[0] == (
        f"the worker cannot be started (No such file or directory: {log}): it is started again in 1 s"
    )


def test_a_worker_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    ignoring = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True)"
    with WorkerProcess(log, [sys.executable, "-c", f"{ignoring}; time.sleep(600)"], grace_seconds=0.5):
        until(lambda: log.exists() and "deaf" in log.read_text())
        started = time.monotonic()
    assert 0.4 < time.monotonic() - started < 10


def test_a_worker_dies_with_a_service_that_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    program = (
        "import sys, time, pathlib; from service.worker_process import WorkerProcess\n"
        "with WorkerProcess(pathlib.Path(sys.argv[1]), sys.argv[2:]) as worker:\n"
        "    time.sleep(600)\n"
    )
    child = [*WAITING_CHILD[:2], "import os; print(os.getpid(), flush=True); " + WAITING_CHILD[2]]
    with subprocess.Popen([sys.executable, "-c", program, str(log), *child]) as service:
        pid = int(until(lambda: log.exists() and "started" in log.read_text() and log.read_text().split()[0]))
        assert alive(pid)
        service.kill()
    until(lambda: not alive(pid), seconds=10)

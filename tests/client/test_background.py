"""The blocking clients' event loop: one thread, waited for from any other, and none of it left behind."""

import asyncio
import os
import signal
import subprocess
import sys
import threading

import pytest

from headrace.client import background
from headrace.client.errors import ClientClosed, KafkaTimeout


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


async def fail() -> None:
    raise LookupError("as told")


class Patient:
    """A coroutine that waits for ever, and notes that it began and was cancelled."""

    def __init__(self) -> None:
        self.began, self.cleaned_up = threading.Event(), False

    async def wait(self) -> None:
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.cleaned_up = True


def test_a_coroutine_runs_on_the_one_thread_and_its_result_or_error_comes_back() -> None:
    async def where() -> threading.Thread:
        return threading.current_thread()

    assert background.run(double(21)) == 42
    thread = background.run(where())
    assert thread is background.run(where()) is not threading.current_thread()
    assert thread.daemon
    with pytest.raises(LookupError, match="as told"):
        background.run(fail())


def test_many_threads_share_the_loop() -> None:
    results: list[int] = []
    threads = [threading.Thread(target=lambda n=n: results.append(background.run(double(n)))) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [0, 2, 4, 6, 8, 10, 12, 14]


def test_what_is_not_done_in_time_is_cancelled() -> None:
    patient = Patient()
    with pytest.raises(KafkaTimeout, match=r"within 0.01 s"):
        background.run(patient.wait(), timeout=0.01)
    assert patient.cleaned_up


def test_ctrl_c_cancels_the_coroutine_and_lets_it_clean_up() -> None:
    patient = Patient()
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        patient.began.wait()
        signal.pthread_kill(main, signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        interrupter = threading.Thread(target=interrupt)
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            background.run(patient.wait())
        interrupter.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert patient.cleaned_up


def test_a_blocking_call_on_the_loops_own_thread_is_refused() -> None:
    async def nested() -> int:
        return background.run(double(1))

    with pytest.raises(RuntimeError, match="async client"):
        background.run(nested())


def test_functions_are_called_on_the_loop() -> None:
    called = threading.Event()
    background.call_soon(called.set)
    assert called.wait(10)


@pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning")
def test_a_child_process_gets_a_loop_of_its_own() -> None:
    before = background.current()
    assert background.run(double(1)) == 2
    child = os.fork()
    if child == 0:
        status = 1
        try:
            assert background.run(double(2), timeout=10) == 4
            assert background.current() is not before
            with pytest.raises(ClientClosed, match="before a fork"):
                before.run(double(3))
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert background.current() is before
    assert background.run(double(4)) == 8


def test_a_program_ends_with_something_still_running() -> None:
    program = """
import asyncio, sys
from headrace.client import background

async def for_ever():
    try:
        await asyncio.Event().wait()
    finally:
        print("cleaned up")

background.call_soon(lambda: setattr(sys, "kept", background.current().loop.create_task(for_ever())))
background.run(asyncio.sleep(0))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "cleaned up\n", "")

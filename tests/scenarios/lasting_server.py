"""A broker process that a test can start again at the same address, with the same data."""

from pathlib import Path

from headrace.testing.broker_process import BrokerProcess


class Server:
    def __init__(self, folder: Path, *settings: str) -> None:
        self._folder = folder
        self._settings = settings
        self._process = BrokerProcess(folder, *settings)
        self.address = self._process.address

    def kill(self) -> None:
        self._process.kill()
        self._process.close()

    def start(self) -> None:
        self._process = BrokerProcess(self._folder, *self._settings, "--listen", self.address)

    def close(self) -> None:
        self._process.close()

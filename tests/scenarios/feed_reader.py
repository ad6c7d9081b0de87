"""Follows a change feed all the time, whatever is killed, and keeps the rows of the view.

Each change must fit the rows that the reader has: a change that was lost or came twice is noticed at once.
"""

import http.client
import json
import threading
from contextlib import suppress


class FeedReader:
    def __init__(self, port: int, view: str) -> None:
        self._port, self._view = port, view
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"changes of {view}")
        self._rows: dict[str, dict[str, object]] = {}
        self._is_complete = False
        self.connections = self.changes = self.snapshots = 0
        self.error: str | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ends.set()
        if self._thread.ident is not None:
            self._thread.join()

    def rows(self) -> list[dict[str, object]] | None:
        """The rows of the view; None within a snapshot."""
        return list(self._rows.values()) if self._is_complete else None

    def _run(self) -> None:
        last_id = ""
        while not self._ends.is_set():
            with suppress(OSError, http.client.HTTPException):
                last_id = self._follow(last_id) or last_id
            self._ends.wait(0.1)

    def _follow(self, last_id: str) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=2)
        try:
            headers = {"Last-Event-ID": last_id} if last_id else {}
            connection.request("GET", f"/views/{self._view}/changes", headers=headers)
            response = connection.getresponse()
            if response.status != 200:
                return last_id
            self.connections += 1
            fields: dict[str, str] = {}
            with suppress(OSError, http.client.HTTPException):
                while not self._ends.is_set() and (raw := response.readline()):
                    line = raw.decode().rstrip("\n")
                    if line:
                        name, _, value = line.partition(": ")
                        fields[name] = value
                        continue
                    if "event" in fields:
                        self._apply(fields["event"], json.loads(fields["data"]))
                        last_id = fields.get("id", last_id)
                    fields = {}
            return last_id
        finally:
            connection.close()

    def _apply(self, event: str, data: dict) -> None:
        if event == "begin":
            self._rows, self._is_complete = {}, False
            self.snapshots += 1
        elif event == "row":
            self._rows[json.dumps(data["row"])] = data["row"]
        elif event == "ready":
            self._is_complete = True
        elif event == "change":
            self.changes += 1
            before, after = data["before"], data["after"]
            if before is not None and self._rows.pop(json.dumps(before), None) is None:
                self.error = f"a change of a row that the reader does not have: {data}"
            if after is not None:
                if json.dumps(after) in self._rows:
                    self.error = f"a row came twice: {data}"
                self._rows[json.dumps(after)] = after

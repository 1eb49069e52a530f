"""Database: connections, fork safety and schema version of one SQLite file. Transaction: runs the `.sql` files.

MemoryDatabase is the same in the memory of one process.

It knows nothing of jobs. Each process has one connection to write, one to read and one to watch, so that its threads
wait for each other in order and only processes compete for the file's lock.

All connections are closed before a fork: a child with an inherited connection could lose its own writes. Once the
sentinel reports closed descriptors, nothing is written any more: SQLite would write into other files.
"""

from __future__ import annotations

import os
import random
import re
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from ... import sentinel
from ...broker import Finding
from ...errors import BrokerAwayError, BrokerError, BrokerRefusedError, ConfigError

OLDEST_SQLITE = (3, 35)
PURPOSES = ("write", "read", "watch")
#: "LANE", by which Laneway and the command `file` recognise Laneway's files.
APPLICATION_ID = 0x4C414E45
#: The size of a connection's page cache, and so the most memory that a long backlog adds to a process. It is enough for
#: what a transaction touches. A larger cache is worth little, because another process's commit empties it.
CACHE_KIB = 4_000


@cache
def read_statements(name: str) -> Mapping[str, str]:
    """The statements of a `.sql` file of this package, or of a folder of them, by the `-- name:` line above each."""
    place = resources.files(__name__.rpartition(".")[0]).joinpath(name)
    if place.is_dir():
        return {key: text for each in place.iterdir() for key, text in read_statements(f"{name}/{each.name}").items()}
    parts = re.split(r"^-- name: (\w+)\n", place.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], (part.strip() for part in parts[2::2]), strict=True))


class Transaction(msgspec.Struct):
    """A running transaction: runs the statements of `queries/` by name.

    If `read` or `watch` gave it, each statement is a transaction of its own and sees the latest commit.

    Lists travel in one parameter, and answers of many rows as one text, both JSON: ADR 0002 says why.
    """

    #: For SQL that is not in `queries/`.
    connection: sqlite3.Connection
    statements: Mapping[str, str]

    def run(self, statement: str, /, **values: Any) -> sqlite3.Cursor:
        """Run a statement that changes rows. The cursor's `rowcount` says how many."""
        return self.connection.execute(self.statements[statement], values)

    def run_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement once for each row of values."""
        self.connection.executemany(self.statements[statement], rows)

    def one(self, statement: str, /, **values: Any) -> Any:
        """The first row of the answer, or None."""
        return self.connection.execute(self.statements[statement], values).fetchone()

    def value(self, statement: str, /, **values: Any) -> Any:
        """The first column of the first row."""
        return self.connection.execute(self.statements[statement], values).fetchone()[0]

    def all(self, statement: str, /, **values: Any) -> list[Any]:
        """All rows of the answer."""
        return self.connection.execute(self.statements[statement], values).fetchall()


class Database:
    """One SQLite file."""

    _purposes: tuple[str, ...] = PURPOSES
    _is_intact = staticmethod(sentinel.is_intact)

    def __init__(self, path: Path, *, synchronous: str = "normal", timeout_s: float = 30.0) -> None:
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise ConfigError(
                f"This Python comes with SQLite {sqlite3.sqlite_version}, and Laneway needs "
                f"{'.'.join(map(str, OLDEST_SQLITE))} or later; use a newer Python."
            )
        self.path = path
        self._synchronous = synchronous
        self._timeout_s = timeout_s
        self._schema = dict(read_statements("schema.sql"))
        self.statements = read_statements("queries")
        self._file: tuple[int, int] | None = None
        self._looked_at = 0.0
        self._astray = False
        self._connections: dict[str, sqlite3.Connection] = {}
        self._make_locks()
        _databases.add(self)

    def _make_locks(self) -> None:
        self._locks = {purpose: threading.Lock() for purpose in self._purposes}
        self._opening = threading.Lock()

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """A transaction that holds the file's write lock from its beginning. It is stored as a whole or not at all."""
        with self._connection("write") as connection:
            try:
                self._begin(connection)
                yield Transaction(connection, self.statements)
                self._check_descriptors()
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction and self._is_intact():
                    connection.execute("ROLLBACK")
                raise

    def run_alone(self, statement: str, values: Sequence[Any]) -> int:
        """Run one statement of `queries/` as a transaction of its own. Returns how many rows it changed."""
        with self._connection("write") as connection:
            return self._patiently(connection, self.statements[statement], values).rowcount

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """A connection for reading. It does not block writers, and writers do not block it."""
        with self._connection("read") as connection:
            yield Transaction(connection, self.statements)

    @contextmanager
    def watch(self) -> Iterator[Transaction]:
        """A separate connection for the waker, so that commits of all other connections change its data_version."""
        with self._connection("watch") as connection:
            yield Transaction(connection, self.statements)

    def version(self, watch: Transaction) -> int:
        """A number that changes with every commit of any process."""
        version: int = watch.connection.execute("PRAGMA data_version").fetchone()[0]
        return version

    @contextmanager
    def _connection(self, purpose: str) -> Iterator[sqlite3.Connection]:
        with self._locks[purpose]:
            self._check_descriptors()
            try:
                connection = self._connections.get(purpose)
                if connection is None:
                    connection = self._connections[purpose] = self._open()
                    if purpose == "write":
                        connection.execute("PRAGMA busy_timeout = 0")  # it waits in _begin
                        # Else a statement that changes many rows writes its undo data to a temporary file.
                        connection.execute("PRAGMA temp_store = MEMORY")
                yield connection
            except sqlite3.Error as error:
                raise self._explain(error) from error

    def _check_descriptors(self) -> None:
        """Raise BrokerAwayError if anything has closed the descriptors of this process, SQLite's among them.

        SQLite does not notice. It would write to whatever file has its descriptor numbers now. A file that it opened
        would get a number to which another part of the process still writes, such as its log.
        """
        if not self._is_intact():
            raise BrokerAwayError(
                f"This process can no longer use the database {self.place}: its file descriptors were closed. "
                "Restart it."
            )

    @property
    def place(self) -> str:
        """The name of the database in sentences."""
        return str(self.path)

    def unmade(self) -> Finding | None:
        """A finding if there is no file yet, whether or not it can be made."""
        try:
            if self.path.exists():
                return None
        except OSError:
            return None  # a path that may not be read counts as existing; opening it reports what is wrong
        folder = self.path.absolute().parent
        if not folder.is_dir():
            text = f"There is no folder {folder} for the database {self.path.name}; make it first."
            return Finding("problem", "no-folder", text, self.place)
        if not os.access(folder, os.W_OK):
            text = f"The database {self.place} cannot be made: the folder {folder} may not be written to."
            return Finding("problem", "read-only-folder", text, self.place)
        text = f"There is no database {self.place} yet; a worker or the first job makes it."
        return Finding("ok", "no-database", text, self.place)

    def check_file(self) -> None:
        """Raise BrokerAwayError if the path does not lead to the file that is open. Looks at most once a second.

        If the file was moved away or replaced, this process has a file open that no other process can see. Opening the
        new file would not help: when SQLite closes the first file, it removes the log of the second.
        """
        now = time.monotonic()
        if self._file is None or (not self._astray and now - self._looked_at < 1.0):
            return
        self._looked_at = now
        found = self._identity()
        self._astray = found != self._file
        if self._astray:
            what = "is gone" if found is None else "was replaced by another file"
            raise BrokerAwayError(
                f"The database {self.place} {what} while it was in use; put it back, or restart this process."
            )

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _begin(self, connection: sqlite3.Connection) -> None:
        self._patiently(connection, "BEGIN IMMEDIATE")

    def _patiently(self, connection: sqlite3.Connection, statement: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        # SQLite's own wait sleeps up to 100 ms between tries. Ours sleeps for shorter, random times.
        deadline = time.monotonic() + self._timeout_s
        pause_s = 0.0002
        while True:
            try:
                return connection.execute(statement, values)
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or time.monotonic() > deadline:
                    raise
            time.sleep(pause_s * (0.5 + random.random()))
            self._check_descriptors()
            pause_s = min(pause_s * 1.5, 0.004)

    def _open(self) -> sqlite3.Connection:
        with self._opening:
            if not self.path.parent.is_dir():
                raise ConfigError(
                    f"The database {self.place} cannot be opened: there is no folder {self.path.parent}; make it first."
                )
            sentinel.watch()
            connection = sqlite3.connect(self.path, timeout=0, isolation_level=None, check_same_thread=False)
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
            self._file = self._identity()
            return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute(f"PRAGMA busy_timeout = {int(self._timeout_s * 1000)}")
        self._recognise(connection)
        # Two processes that open a new file at once both get "locked" here, whatever busy_timeout says.
        mode = self._patiently(connection, "PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise ConfigError(f"The database {self.place} cannot use SQLite's WAL mode; put it on a local disk.")
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        self._migrate(connection)

    def _recognise(self, connection: sqlite3.Connection) -> None:
        """Refuse a database of another program, before anything in it is changed."""
        (tables,) = self._patiently(connection, "SELECT count(*) FROM sqlite_master").fetchone()
        if tables and _pragma(connection, "application_id") != APPLICATION_ID:
            raise ConfigError(f"{self.place} is a database of another program; give Laneway a file of its own.")

    def _migrate(self, connection: sqlite3.Connection) -> None:
        versions = len(self._schema)
        if _pragma(connection, "user_version") == versions:
            return
        self._begin(connection)
        try:
            version = _pragma(connection, "user_version")  # again: another process may have been first
            if version > versions:
                raise ConfigError(
                    f"The database {self.place} was written by a newer Laneway (schema {version}, this one knows "
                    f"{versions}); upgrade Laneway."
                )
            for number in range(version + 1, versions + 1):
                for statement in _split(self._schema[f"version_{number}"]):
                    connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {versions}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _explain(self, error: sqlite3.Error) -> BrokerError | ConfigError:
        name = getattr(error, "sqlite_errorname", None) or ""
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return BrokerAwayError(
                f"The database {self.place} was locked by others for {self._timeout_s:g} s; nothing was written."
            )
        if name == "SQLITE_FULL":
            return BrokerAwayError(f"The disk of {self.place} is full; nothing was written. Make room.")
        if name.startswith("SQLITE_IOERR"):
            return BrokerAwayError(f"The database {self.place} cannot be read or written ({error}); look at its disk.")
        if name.startswith(("SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_READONLY", "SQLITE_AUTH")):
            place = self._unwritable()
            if place is not None or name.startswith("SQLITE_READONLY"):
                why = str(error) if place is None else f"{place} cannot be written"
                return ConfigError(
                    f"The database {self.place} is read-only: {why}. Make its file, the folder and what SQLite keeps "
                    "beside the file (-wal, -shm) writable for this user, and mount their disk writable."
                )
            return ConfigError(
                f"The database {self.place} cannot be opened ({error}); look at the path and its permissions."
            )
        if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
            return ConfigError(f"{self.place} is not a database of Laneway's or is damaged ({error}).")
        return BrokerRefusedError(f"The database {self.place} refused: {error}.")

    def _unwritable(self) -> Path | None:
        """A file of the database, or the folder of SQLite's log, that this process may read but not write."""
        files = [self.path, *(self.path.with_name(self.path.name + end) for end in ("-wal", "-shm"))]
        places = [*(file for file in files if file.is_file()), self.path.parent]
        return next((each for each in places if os.access(each, os.R_OK) and not os.access(each, os.W_OK)), None)

    def close(self) -> None:
        """Close this process's connections; the next use opens them again."""
        for purpose, lock in self._locks.items():
            with lock:
                self._close(purpose)
        self._file = None

    def _close(self, purpose: str) -> None:
        if not self._is_intact():
            return  # SQLite would close, and may write to, whatever files have its descriptor numbers now
        connection = self._connections.pop(purpose, None)
        if connection is not None:
            connection.close()

    def before_fork(self) -> None:
        """Close the file, so that the child inherits no connection.

        SQLite's locks belong to a process, but SQLite's record of them is copied into the child. A child that opened
        the file beside an inherited connection would take no lock of its own. When the parent then closed the file
        and removed the log, all that the child stored afterwards would be lost.
        """
        for purpose, lock in self._locks.items():
            lock.acquire()
            self._close(purpose)

    def after_fork_in_parent(self) -> None:
        for lock in self._locks.values():
            lock.release()

    def after_fork_in_child(self) -> None:
        self._make_locks()


class MemoryDatabase(Database):
    """A database in the memory of this process: one connection and one lock, whatever the purpose.

    The connection is the data, so neither `close` nor a fork closes it. It ends with this object. A forked child has
    its own copy, made between two transactions. Neither parent nor child sees what the other stores afterwards.
    """

    _purposes = ("write",)
    _is_intact = staticmethod(lambda: True)  # it has no descriptors that a job could close

    @property
    def place(self) -> str:
        return "memory:"

    def unmade(self) -> Finding | None:
        return None

    def version(self, watch: Transaction) -> int:
        return watch.connection.total_changes  # data_version does not count a connection's own commits

    @contextmanager
    def _connection(self, purpose: str) -> Iterator[sqlite3.Connection]:
        with super()._connection("write") as connection:
            yield connection

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        weakref.finalize(self, connection.close).atexit = False  # a thread may be using it until the very end
        self._migrate(connection)
        return connection

    def _close(self, purpose: str) -> None:
        """Keep the connection."""


_databases: weakref.WeakSet[Database] = weakref.WeakSet()
#: Held from before a fork until after it. Two threads may fork at once, and the list below serves one fork at a time.
_fork_lock = threading.Lock()
#: The databases that were closed for the fork under way. Databases that are made later are not in it.
_forking: list[Database] = []


def _before_fork() -> None:
    _fork_lock.acquire()
    _forking[:] = _databases
    for database in _forking:
        database.before_fork()


def _after_fork_in_parent() -> None:
    for database in _forking:
        database.after_fork_in_parent()
    _forking.clear()
    _fork_lock.release()


def _after_fork_in_child() -> None:
    for database in _forking:
        database.after_fork_in_child()
    _forking.clear()
    _fork_lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    value: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value


def _split(script: str) -> Iterator[str]:
    """The statements of a script. (`executescript` would commit the transaction that they must share.)"""
    statement = ""
    for line in script.splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _is_busy(error: sqlite3.Error) -> bool:
    return (getattr(error, "sqlite_errorname", None) or "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))

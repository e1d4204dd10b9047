"""A throw-away accounting database for the one-node Slurm: MariaDB and slurmdbd in its folder; needs root."""

import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from dreamproof.testing.waiting import HANG_SECONDS

COMMANDS = ("slurmdbd", "sacct", "sacctmgr", "mariadbd", "mariadb-install-db")
PASSWORD = "throwaway"
GRANTS = f"""\
CREATE USER slurm@'localhost' IDENTIFIED BY '{PASSWORD}';
GRANT ALL ON *.* TO slurm@'localhost';
"""


def missing() -> str | None:
    """Why no accounting can be started here; None where it can."""
    path = os.environ.get("PATH", "") + os.pathsep + "/usr/sbin"
    absent = [name for name in COMMANDS if shutil.which(name, path=path) is None]
    return f"{', '.join(absent)} not installed (Debian: apt-get install slurmdbd mariadb-server)" if absent else None


class Accounting:
    """MariaDB and slurmdbd of one Slurm; `folder` is that Slurm's own."""

    def __init__(self, folder: Path, ports: tuple[int, int]) -> None:
        self.folder = folder
        self.database_port, self.port = ports
        self._database: subprocess.Popen[bytes] | None = None

    @property
    def lines(self) -> dict[str, object]:
        """The lines of slurm.conf that use it."""
        return {
            "AccountingStorageType": "accounting_storage/slurmdbd",
            "AccountingStorageHost": "127.0.0.1",
            "AccountingStoragePort": self.port,
            "AccountingStoragePass": self.folder / "run" / "munge.socket",
        }

    def start(self, cluster: str) -> None:
        """Starts both and registers the cluster; munge must run already."""
        self._start_database()
        conf = self.folder / "slurmdbd.conf"
        lines = {
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={self.folder / 'run' / 'munge.socket'}",
            "DbdHost": "localhost",
            "DbdAddr": "127.0.0.1",
            "DbdPort": self.port,
            "SlurmUser": "root",
            "StorageType": "accounting_storage/mysql",
            "StorageHost": "127.0.0.1",
            "StoragePort": self.database_port,
            "StorageUser": "slurm",
            "StoragePass": PASSWORD,
            "StorageLoc": "accounts",
            "PidFile": self.folder / "run" / "slurmdbd.pid",
            "LogFile": self.folder / "log" / "slurmdbd.log",
        }
        conf.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        conf.chmod(0o600)
        self._run("slurmdbd")
        until = time.monotonic() + HANG_SECONDS
        while self._run("sacctmgr", "-i", "add", "cluster", cluster, check=False) != 0:
            if time.monotonic() > until:
                raise TimeoutError((self.folder / "log" / "slurmdbd.log").read_text()[-2000:])
            time.sleep(0.2)

    def _start_database(self) -> None:
        data, grants = self.folder / "database", self.folder / "grants.sql"
        grants.write_text(GRANTS)
        self._run("mariadb-install-db", "--no-defaults", f"--datadir={data}", "--user=root", "--skip-test-db")
        with (self.folder / "log" / "database.log").open("wb") as log:
            self._database = subprocess.Popen(
                [
                    shutil.which("mariadbd", path=self._variables["PATH"]) or "mariadbd",
                    "--no-defaults",
                    "--user=root",
                    f"--datadir={data}",
                    f"--socket={self.folder / 'run' / 'database.socket'}",
                    f"--port={self.database_port}",
                    "--bind-address=127.0.0.1",
                    f"--init-file={grants}",
                ],
                start_new_session=True,
                stdout=log,
                stderr=log,
            )
        until = time.monotonic() + HANG_SECONDS
        while time.monotonic() < until:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", self.database_port), 1.0).close()
                return
            time.sleep(0.1)
        raise TimeoutError((self.folder / "log" / "database.log").read_text()[-2000:])

    @property
    def _variables(self) -> dict[str, str]:
        path = os.environ.get("PATH", "") + os.pathsep + "/usr/sbin"
        return {**os.environ, "PATH": path, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def _run(self, *arguments: str, check: bool = True) -> int:
        return subprocess.run(
            arguments, env=self._variables, check=check, capture_output=True, timeout=HANG_SECONDS
        ).returncode

    def stop(self) -> None:
        """Ends both; slurmdbd first, while it still has its database."""
        with suppress(OSError, ValueError):
            os.kill(int((self.folder / "run" / "slurmdbd.pid").read_text()), signal.SIGTERM)
            time.sleep(0.5)
        if self._database is not None:
            self._database.kill()
            self._database.wait()

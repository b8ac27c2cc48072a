"""The data folder of one installation: where each part keeps what."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from qualityhub.engine.errors import ConflictError, InvalidInputError
from qualityhub.engine.home import default_home
from qualityhub.standalone.secretfiles import private_folder


@dataclass(frozen=True, slots=True)
class Home:
    """A data folder.

    Attributes:
        root: The folder itself, absolute.
    """

    root: Path

    @property
    def secrets(self) -> Path:
        """Generated passwords and keys, mode 0700."""
        return self.root / "secrets"

    @property
    def logs(self) -> Path:
        """One log file per part."""
        return self.root / "logs"

    @property
    def run(self) -> Path:
        """What describes the running instance; worthless once it ended."""
        return self.root / "run"

    @property
    def postgres(self) -> Path:
        """The embedded database."""
        return self.root / "postgres"

    @property
    def broker(self) -> Path:
        """The embedded broker."""
        return self.root / "broker"

    @property
    def runtime(self) -> Path:
        """Copies of programs that the database's user must be able to reach."""
        return self.root / "runtime"

    def create(self) -> None:
        """Create what is missing.

        Raises:
            InvalidInputError: ``home.unfit`` or ``home.unwritable``.
            ConflictError: ``home.foreign`` when the folder belongs to somebody else.
        """
        if self.root in {Path("/"), Path.home()}:
            raise InvalidInputError(
                "home.unfit",
                f"{self.root} cannot be the data folder: it is not ours alone.",
                f"Choose a folder of its own, e.g. --home {self.root / 'qualityhub'}",
            )
        try:
            private_folder(self.root)
            owner = self.root.stat().st_uid
            if owner != os.geteuid():
                raise ConflictError(
                    "home.foreign",
                    f"The data folder {self.root} belongs to user id {owner}, "
                    f"but this is user id {os.geteuid()}.",
                    "Start as that user, or choose another folder with --home or QH_HOME.",
                )
            if owner == 0:
                # The database's unprivileged user passes through; it can list nothing.
                self.root.chmod(self.root.stat().st_mode & 0o7777 | 0o011)
            for folder in (self.secrets, self.logs, self.run):
                private_folder(folder)
        except OSError as error:
            raise InvalidInputError(
                "home.unwritable",
                f"The data folder {self.root} cannot be used: {error.strerror}.",
                "Choose another one with --home or QH_HOME.",
            ) from error


def find_home(stated: Path | None = None) -> Home:
    """Return the data folder of this machine's installation; it need not exist.

    Args:
        stated: What the command line says; else ``QH_HOME``, else the platform's place.
    """
    return Home(stated.expanduser().absolute() if stated else default_home())

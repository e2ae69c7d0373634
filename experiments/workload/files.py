"""A file of a trace: opened by its content (gzip or plain), read as a stream, and blamed by name and line.

Everything that can go wrong with a file ends as one `UserError` that says where and what to do.

Knows nothing of what stands in a line.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from experiments.errors import UserError

GZIP_MAGIC = b"\x1f\x8b"


class TraceFile:
    """One file, and the public source it comes from."""

    def __init__(self, path: str | Path, source: str | None) -> None:
        """`source`: where somebody without the file finds it, for the messages; None for a user's own file."""
        self.path = Path(path)
        self._fetch = (
            f"python -m experiments.get_data lists what it can fetch; or download the trace from {source}, and "
        )
        self._fetch += "name its folder with the environment variable "
        self._fetch += "PAGELAB_DATA or data_dir=..., or point at the file with workload.path=..."
        self._again = f"download it anew from {source}"
        self._origin = f" (the trace comes from {source})"
        if source is None:
            self._fetch, self._again, self._origin = "check the path", "write it anew", ""
        self._sha256: str | None = None

    @contextmanager
    def reading(self) -> Iterator[BinaryIO]:
        """The bytes inside, unzipped where they are gzip. Errors of the file system and of gzip become UserError."""
        try:
            with open(self.path, "rb") as raw:
                if raw.read(2) != GZIP_MAGIC:
                    raw.seek(0)
                    yield raw
                else:
                    raw.seek(0)
                    with gzip.GzipFile(fileobj=raw) as unzipped:
                        yield cast(BinaryIO, unzipped)
        except FileNotFoundError:
            raise UserError(f"{self.path.absolute()} does not exist: {self._fetch}") from None
        except IsADirectoryError:
            raise UserError(
                f"{self.path.absolute()} is a directory: name the file itself with workload.path=...{self._origin}"
            ) from None
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise UserError(f"{self.path} is damaged or cut short ({error}): {self._again}") from None
        except OSError as error:
            raise UserError(f"{self.path} cannot be read ({error.strerror or error}): check its permissions") from None

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Line number, from 1, and content of every line that is not blank."""
        with self.reading() as stream:
            for number, line in enumerate(stream, start=1):
                if not line.isspace():
                    yield number, line

    def count_lines(self) -> int:
        """Lines, blank ones included: a fast count for files of one request a line."""
        with self.reading() as stream:
            return sum(chunk.count(b"\n") for chunk in iter(lambda: stream.read(1 << 20), b""))

    def problem(self, where: str | int, what: object) -> UserError:
        """The error for a place inside the file: a line number, or words such as "run 3"."""
        place = f"line {where}" if isinstance(where, int) else where
        return UserError(
            f"{self.path}, {place}: {what}. Mend or remove it, or {self._again}; workload.limit=N reads only the first "
            "N requests."
        )

    def empty(self) -> UserError:
        """The error for a file without a single request."""
        return UserError(f"{self.path} holds no request: {self._again}")

    def sha256(self) -> str:
        """SHA-256 (hex) of the file as it lies on the disk, the number `sha256sum` prints; computed once."""
        if self._sha256 is None:
            digest = hashlib.sha256()
            with self.reading():  # for its error messages
                pass
            with open(self.path, "rb") as raw:
                while chunk := raw.read(1 << 20):
                    digest.update(chunk)
            self._sha256 = digest.hexdigest()
        return self._sha256

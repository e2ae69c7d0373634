"""One file over HTTP: resumed where it stopped, checked before it counts, there whole or not at all.

Knows nothing of what the file is.
"""

from __future__ import annotations

import hashlib
import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from experiments.errors import UserError

CHUNK = 1 << 18
TRIES = 3
PATIENCE = 1.0
"""Seconds before the second try; then twice as long each time."""
TIMEOUT = 30.0

Progress = Callable[[int, int | None], None]
"""(bytes so far, bytes in all or None)"""


def download(url: str, target: Path, sha256: str | None, progress: Progress = lambda done, total: None) -> str:
    """Fetch `url` to `target`, by way of `target.part`, which a later call goes on with. Returns the SHA-256 (hex).

    Raises UserError where the server cannot be reached or says no, and where the content is not what `sha256` says:
    that part is then removed. OSError for a full disk and the like.
    """
    part = target.with_name(f"{target.name}.part")
    for resumed in (part.exists(), False):
        _fetch(url, part, target, progress)
        found = _sha256(part)
        if sha256 is None or found == sha256:
            part.replace(target)
            return found
        part.unlink()
        if not resumed:
            break
    raise UserError(
        f"{url} is not the file it should be: its SHA-256 is {found}, wanted {sha256}. Either the download was changed "
        "on its way, or the publisher has a new version: --accept takes it as it is."
    )


def _fetch(url: str, part: Path, target: Path, progress: Progress) -> None:
    for attempt in range(TRIES):
        try:
            _fetch_rest(url, part, progress)
            return
        except urllib.error.HTTPError as error:
            if error.code == 416 and part.exists():  # there is nothing behind what we have: begin anew
                part.unlink()
                continue
            if error.code < 500 or attempt == TRIES - 1:
                raise UserError(
                    f"{url}: the server says {error.code} {error.reason}. If the file has moved, download it by hand "
                    f"and put it at {target}."
                ) from None
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
            if attempt == TRIES - 1:
                reason = getattr(error, "reason", error)
                raise UserError(
                    f"{url} cannot be reached ({reason}). Without a connection, download the file on another machine "
                    f"and put it at {target}; what has arrived so far is kept, and the same command goes on with it."
                ) from None
        time.sleep(PATIENCE * 2**attempt)


def _fetch_rest(url: str, part: Path, progress: Progress) -> None:
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "pagelab"} | ({"Range": f"bytes={have}-"} if have else {})
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        if answer.status != 206:
            have = 0
        length = answer.headers.get("Content-Length")
        total = None if length is None else have + int(length)
        with open(part, "ab" if have else "wb") as file:
            while chunk := answer.read(CHUNK):
                file.write(chunk)
                have += len(chunk)
                progress(have, total)
        if total is not None and have < total:
            raise ConnectionError(f"the connection ended after {have:,} of {total:,} bytes")


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

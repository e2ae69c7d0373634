"""Processes that share a folder or a parent: one writer at a time, and no worker without its parent.

Knows nothing of what they do.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from experiments.errors import UserError

LOCK = ".lock"
WATCH = "exit-with-parent"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Wait until no other process works in the folder. The lock goes with its process, however that ends."""
    file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def claim(folder: Path) -> None:
    """Hold the folder for this process until it ends. Raises UserError where another process holds it."""
    folder.mkdir(parents=True, exist_ok=True)
    file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise UserError(
            f"{folder}: another process is running this sweep. Wait for it, or give this one another folder with "
            f"hydra.sweep.dir=..."
        ) from None


def exit_with_parent(every: float = 0.5) -> None:
    """End this process soon after its parent, which may have been killed without a chance to say so.

    `every`: seconds between two looks. Calling it again does nothing.
    """
    if any(thread.name == WATCH for thread in threading.enumerate()):
        return
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(every)
        os._exit(1)

    threading.Thread(target=watch, name=WATCH, daemon=True).start()

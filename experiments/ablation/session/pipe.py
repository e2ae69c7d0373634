"""Messages from a worker process to the one that watches it: a JSON object a line, through a pipe of their own.

Standard output and error stay free for whatever libraries print. Knows nothing of what the messages mean.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from experiments.atomic import json_line

Message = dict[str, Any]


def send(fd: int, message: Message) -> None:
    """Whole or, where the reader is gone, not at all. Raises OSError."""
    data = f"{json_line(message)}\n".encode()
    while data:
        data = data[os.write(fd, data) :]


@contextmanager
def receive(
    spawn: Callable[[int], subprocess.Popen[bytes]],
) -> Iterator[tuple[subprocess.Popen[bytes], queue.Queue[Message | None]]]:
    """The worker, given a descriptor to write to, and its messages, None after the last. It is killed at the end."""
    reader, writer = os.pipe()
    messages: queue.Queue[Message | None] = queue.Queue()
    try:
        worker = spawn(writer)
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)

    def read() -> None:
        with open(reader, "rb") as lines:
            for line in lines:
                if line.endswith(b"\n"):  # a worker killed halfway leaves half a line
                    messages.put(json.loads(line))
        messages.put(None)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield worker, messages
    finally:
        worker.kill()
        worker.wait()
        thread.join()

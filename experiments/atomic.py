"""Files that appear whole or not at all, and values that survive JSON.

Knows nothing of what the files mean.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TEMP = ".tmp"


def write_whole(path: Path, data: bytes) -> None:
    """Write a file under another name, push it to the disk, then rename it: no reader ever sees half of it.

    Raises OSError (disk full, no permission); the old file, if any, is then untouched.
    """
    temp = path.with_name(f".{path.name}.{os.getpid()}{TEMP}")
    try:
        with open(temp, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temp, path)
    except BaseException as error:
        temp.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # a full disk does not say which file it was
        raise


def remove_temporary_files(folder: Path) -> None:
    """Sweep up what a killed process left of `write_whole`."""
    for temp in folder.glob(f".*{TEMP}"):
        temp.unlink(missing_ok=True)


def plain(value: Any) -> Any:
    """The value in the types of strict JSON; NaN and infinities become the words "nan", "inf" and "-inf"."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def json_line(value: Any) -> str:
    """One line of strict JSON."""
    return json.dumps(plain(value), allow_nan=False, ensure_ascii=False)


def json_file(value: Any) -> bytes:
    """Strict JSON for people to read."""
    return (json.dumps(plain(value), allow_nan=False, ensure_ascii=False, indent=2) + "\n").encode()

"""From what a user writes after `tokenizer=` to a tokenizer.

Knows nothing of what it is used for.
"""

from __future__ import annotations

from pathlib import Path

from experiments.errors import UserError
from experiments.tokenizer.base import Tokenizer
from experiments.tokenizer.json_file import JsonTokenizer
from experiments.tokenizer.smollm2 import SmolLM2


def open_tokenizer(name: str | None) -> Tokenizer:
    """None or "smollm2": the embedded one; else the path of a `tokenizer.json`, or of the folder that holds it.

    Raises UserError for anything else; nothing is ever downloaded.
    """
    if name is None or name == "smollm2":
        return SmolLM2()
    path = Path(name).expanduser()
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise UserError(
            f"tokenizer={name} is unknown: it is neither smollm2 nor a file here. Give the path of a model's "
            "tokenizer.json, or of the folder that holds it (nothing is downloaded)."
        )
    return JsonTokenizer(file)

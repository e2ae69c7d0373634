"""Text to SmolLM2's token ids, remembered on disk: tokenising is slow, and loading the tokenizer alone takes 2 s.

A cache file is named by a hash of the texts, the tokenizer and the version of the package that runs it, so it is never
stale. It appears whole or not at all, whoever else writes it at the same time; a damaged one is made anew; where the
folder cannot be written, everything works without it.

Knows nothing of requests.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import logging
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from cache.tokens import pack
from experiments.errors import UserError
from model.tokenizer import INSTALL, MissingModelError, SmolLM2Tokenizer, load_smollm2, smollm2_identity

Piece = tuple[str | None, str | None]
"""What is tokenised on its own: (None, text) raw text, (role, content) a chat message, (role, None) its header only.

("assistant", None) is the generation prompt. A chat's ids are those of its pieces, joined.
"""

GENERATION_PROMPT: Piece = ("assistant", None)

log = logging.getLogger(__name__)


class TextEncoder:
    """Encodes pieces in batches, each batch one cache file. The tokenizer is loaded at the first miss."""

    def __init__(self, cache_dir: str | None = None) -> None:
        """`cache_dir`: default `$XDG_CACHE_HOME/pagelab`, or `~/.cache/pagelab`."""
        home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        self.folder = Path(cache_dir or Path(home) / "pagelab").expanduser() / "tokens"
        self._tokenizer: SmolLM2Tokenizer | None = None

    @staticmethod
    def identity() -> str:
        """Names the tokenizer. Raises UserError where it is not installed."""
        try:
            return smollm2_identity()
        except MissingModelError as error:
            raise UserError(str(error)) from None

    def encode(self, pieces: Sequence[Piece]) -> list[bytes]:
        """Packed int32 ids of every piece. Raises UserError where the tokenizer is not installed."""
        return self.remembered(self._key(pieces), len(pieces), lambda: self._encoded(pieces))

    def remembered(self, key: str, count: int, make: Callable[[], list[bytes]]) -> list[bytes]:
        """What was stored under a key, or what `make` makes now; `count`: how many packed sequences that must be."""
        file = self.folder / f"{key}.bin"
        found = _read(file)
        if found is None or len(found) != count:
            found = make()
            _write(file, found)
        return found

    def _encoded(self, pieces: Sequence[Piece]) -> list[bytes]:
        tokenizer = self._load()
        return [pack(_encode(tokenizer, piece)) for piece in pieces]

    def _load(self) -> SmolLM2Tokenizer:
        if self._tokenizer is None:
            try:
                self._tokenizer = load_smollm2()
            except MissingModelError as error:
                raise UserError(str(error)) from None
        return self._tokenizer

    def _key(self, pieces: Sequence[Piece]) -> str:
        try:
            told = (self.identity(), importlib.metadata.version("tokenizers"), pieces)
        except importlib.metadata.PackageNotFoundError:
            raise UserError(f"SmolLM2's tokenizer needs the package tokenizers; install it with: {INSTALL}") from None
        return hashlib.sha256(msgspec.msgpack.encode(told)).hexdigest()


def _encode(tokenizer: SmolLM2Tokenizer, piece: Piece) -> list[int]:
    role, content = piece
    if role is None:
        return tokenizer.encode(content or "")
    return tokenizer.header(role) if content is None else tokenizer.message(role, content)


def _read(file: Path) -> list[bytes] | None:
    """The file's content, or None for a file that is absent or damaged."""
    try:
        data = file.read_bytes()
        if hashlib.sha256(data[32:]).digest() == data[:32]:
            return msgspec.msgpack.decode(data[32:], type=list[bytes])
    except (OSError, msgspec.DecodeError):
        return None
    log.warning("%s is damaged and is made anew", file)
    return None


def _write(file: Path, content: list[bytes]) -> None:
    payload = msgspec.msgpack.encode(content)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=file.parent, prefix="part-", delete=False) as part:
            try:
                part.write(hashlib.sha256(payload).digest() + payload)
                part.close()
                os.replace(part.name, file)
            except BaseException:
                os.unlink(part.name)
                raise
    except OSError as error:
        log.warning("token ids are not kept in %s: %s", file.parent, error)

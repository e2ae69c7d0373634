"""Rows of a trace: types whose ranges are checked while decoding, so that an error names the line and the field.

JSON's NaN and Infinity are no JSON and are refused as malformed; numbers beyond a float are out of range.

Knows nothing of tokens or requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, TypeVar

import msgspec

from experiments.workload.files import TraceFile

Count = Annotated[int, msgspec.Meta(ge=0)]
Length = Annotated[int, msgspec.Meta(ge=1)]
Time = Annotated[float, msgspec.Meta(ge=0)]

Row = TypeVar("Row")


def json_lines(file: TraceFile, row_type: type[Row], legend: str = "") -> Iterator[tuple[int, Row]]:
    """Line number and row of every line. Raises UserError for a line that is not a `row_type`.

    `legend` follows the error, to explain fields that have no names.
    """
    decode = msgspec.json.Decoder(row_type).decode
    for number, line in file.lines():
        try:
            yield number, decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            hint = encoding_hint(line, number) or form_hint(line, _form(row_type))
            raise file.problem(number, f"{error}{legend}{hint}") from None


def form_hint(line: bytes, form: str) -> str:
    """What was expected instead of a line that does not even begin like it, to follow the decoder's own words."""
    return "" if line.lstrip()[:1] == form[:1].encode() else f"; a line here looks like {form}"


def _form(row_type: type) -> str:
    """A line of this type, in outline."""
    if not issubclass(row_type, msgspec.Struct):
        return "a list"
    names = [field.encode_name for field in msgspec.structs.fields(row_type)]
    left, right = "[]" if row_type.__struct_config__.array_like else "{}"
    return left + ", ".join(f'"{name}": ...' if left == "{" else name for name in names) + right


def encoding_hint(line: bytes, number: int) -> str:
    """What to do about a line that is not plain UTF-8, to follow the decoder's own words; "" where that is not it."""
    if sum(byte < 9 for byte in line[:200]) > 2 and line[:1] not in b"{[" and line.count(0) <= len(line) // 3:
        return ": the file is binary, no text"
    if line.startswith((b"\xff\xfe", b"\xfe\xff")) or line.count(0) > len(line) // 3:
        return ": the file is UTF-16, not UTF-8 (iconv -f UTF-16 -t UTF-8 FILE > NEW)"
    if number == 1 and line.startswith(b"\xef\xbb\xbf"):
        return ": the file begins with a byte order mark (sed -i '1s/^\\xEF\\xBB\\xBF//' FILE removes it)"
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        found = f": byte {error.start} of the line, {line[error.start]:#04x}, is no UTF-8"
        return f"{found} (if the file is Latin-1: iconv -f LATIN1 -t UTF-8 FILE > NEW)"
    return ""

"""Reading what the compiler wrote: load widths by source line, the inner loop, matrix instructions, spills.

Everything here is text in, numbers out. Load widths come from PTX (or AMD assembly), where `.loc` still says which
line of our source an instruction stems from; loops and matrix instructions from the disassembled machine code.

Knows nothing of how the text was made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

PAYLOAD = re.compile(r"tl\.load\(\s*(?:tl\.multiple_of\()?(k_ptr|v_ptr|acc_ptr|src_ptr)s?\b")
FILE = re.compile(r'^\s*\.file\s+(\d+)\s+(?:"([^"]*)"\s+)?"([^"]*)"')
LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)")
PTX_LOAD = re.compile(r"\bld\.global[\w.:]*?(?:\.v(\d))?\.[a-z](\d+)\s")
PTX_COPY = re.compile(r"\bcp\.async\.c[ag]\.shared\.global\s.*?,\s*0x([0-9a-f]+)")
AMD_LOAD = re.compile(r"^\s*(?:global|buffer)_load_(?:lds_)?(dwordx?(\d)?|u?short|[su]byte)")
MATRIX = re.compile(r"\b(UTC\w*MMA|\wGMMA\.[\w.]+|[HIQD]MMA\.[\w.]+|v_mfma_\w+)")
SASS_LABEL = re.compile(r"^\s*(\.L_\w+):")
SASS_BRANCH = re.compile(r"\bBRA\S*\s.*?\(?(\.L_\w+)\)?")
SASS_LINE = re.compile(r"/\*([0-9a-f]{4,})\*/")
LLVM_BLOCK = re.compile(r"^(?:(?:\.L|\$L__)(BB\w+):|(?:;|//) %bb\.)")
LLVM_HEADER = re.compile(r"=>\s*This (?:Inner )?Loop Header")
LLVM_MEMBER = re.compile(r"in Loop: Header=(BB\w+)")
LLVM_INNER = re.compile(r"^(?:\.L|\$L__)(BB\w+):.*(?:\n\s*(?:;|//).*)*?=>\s*This Inner Loop Header", re.MULTILINE)


def _loads(text: str) -> Iterator[tuple[int, str, int, bool]]:
    """Global loads of K, V and other payload: line number, pointer name, bytes per thread, asynchronous or not."""
    files = {m[1]: Path(m[2] or "", m[3]) for m in map(FILE.match, text.splitlines()) if m}
    sources = {n: path.read_text().splitlines() if path.is_file() else [] for n, path in files.items()}
    pointer = None
    for number, line in enumerate(text.splitlines()):
        if loc := LOC.match(line):
            source, at = sources.get(loc[1], []), int(loc[2])
            # a load may be written over several lines; its location is the line of `tl.load(`
            found = PAYLOAD.search(source[at - 1]) if 0 < at <= len(source) else None
            pointer = found[1] if found else None
        elif pointer:
            if copy := PTX_COPY.search(line):
                yield number, pointer, int(copy[1], 16), True
            elif load := PTX_LOAD.search(line):
                yield number, pointer, int(load[1] or 1) * int(load[2]) // 8, False
            elif amd := AMD_LOAD.match(line):
                narrow = 1 if "byte" in amd[1] else 2
                yield number, pointer, 4 * int(amd[2] or 1) if amd[1].startswith("dword") else narrow, "_lds_" in line


def load_widths(text: str) -> dict[str, int]:
    """Narrowest global load, in bytes per thread, of each payload pointer: `k_ptr`, `v_ptr`, `acc_ptr`, `src_ptr`."""
    widths: dict[str, int] = {}
    for _, pointer, width, _ in _loads(text):
        widths[pointer] = min(width, widths.get(pointer, width))
    return widths


def bytes_ahead(text: str) -> int:
    """Payload bytes per thread that are on their way at once, read off the assembly.

    Asynchronous copies issued before the inner loop begins, which each turn then replaces, plus the loads into
    registers of one turn. Without a loop, all loads.
    """
    loads = list(_loads(text))
    loops = [loop for loop in find_loops(text) if any(n in loop for n, *_ in loads)]
    if not loops:
        return sum(width for _, _, width, _ in loads)
    loop = max(loops, key=lambda lines: sum(n in lines for n, *_ in loads))
    copies = sum(width for n, _, width, is_copy in loads if is_copy and n not in loop)
    return copies + sum(width for n, _, width, is_copy in loads if not is_copy and n in loop)


def find_loops(text: str) -> list[set[int]]:
    """Line numbers of every innermost loop, in SASS, PTX or AMD assembly."""
    return _backward_branches(text) if SASS_LINE.search(text) else _commented_loops(text)


def _backward_branches(text: str) -> list[set[int]]:
    labels: dict[str, int] = {}
    spans = []
    for number, line in enumerate(text.splitlines()):
        if label := SASS_LABEL.match(line):
            labels[label[1]] = number
        branch = SASS_BRANCH.search(line)
        if branch and branch[1] in labels and number - labels[branch[1]] > 1:
            spans.append((labels[branch[1]], number))
    inner = [a for a in spans if not any(a != b and a[0] <= b[0] and b[1] <= a[1] for b in spans)]
    return [set(range(first, last + 1)) for first, last in inner]


def _commented_loops(text: str) -> list[set[int]]:
    """LLVM lays blocks out in any order, and says in comments which loop each belongs to."""
    loops: dict[str, set[int]] = {}
    header = label = None
    for number, line in enumerate(text.splitlines()):
        if block := LLVM_BLOCK.match(line):
            header, label = None, block[1]
        if LLVM_HEADER.search(line) and label:
            header = label
        elif member := LLVM_MEMBER.search(line):
            header = member[1]
        if header:
            loops.setdefault(header, set()).add(number)
    inner = {m[1] for m in LLVM_INNER.finditer(text)}
    return [lines for name, lines in loops.items() if name in inner]


def loop_instructions(machine_code: str) -> int:
    """Instructions in the inner loop: the one with most matrix instructions, then the longest. 0 if there is none."""
    lines = machine_code.splitlines()
    best = (0, 0)
    for loop in find_loops(machine_code):
        body = [lines[number] for number in loop]
        matrix = sum(bool(MATRIX.search(line)) for line in body)
        best = max(best, (matrix, sum(map(_is_instruction, body))))
    return best[1]


def _is_instruction(line: str) -> bool:
    if SASS_LINE.search(line):
        return True
    return bool(re.match(r"^\s+[a-z]\w+", line)) and not line.lstrip().startswith(".")


def matrix_instruction(machine_code: str) -> str:
    """The matrix instruction used most, as the disassembler spells it; empty where there is none."""
    names = [m[1] for m in MATRIX.finditer(machine_code)]
    return max(sorted(set(names)), key=names.count) if names else ""


def ptxas_usage(log: str) -> tuple[int, int]:
    """Registers per thread and bytes spilled (stores and loads), from the log of `ptxas -v`."""
    registers = re.search(r"Used (\d+) registers", log)
    spills = re.findall(r"(\d+) bytes spill (?:stores|loads)", log)
    if registers is None:
        raise ValueError("this is not a log of ptxas -v: it names no registers")
    return int(registers[1]), sum(map(int, spills))


def sass_bytes(sass: str) -> int:
    """Size of the code, in bytes: instructions are 16 bytes from Volta on."""
    addresses = [int(m[1], 16) for m in map(SASS_LINE.search, sass.splitlines()) if m]
    return max(addresses) + 16 if addresses else 0


def amd_field(text: str, name: str) -> int:
    """A number of AMD's kernel metadata, such as `vgpr_count`; 0 where it is not given."""
    found = re.search(rf"(?:\.{name}:|; {name}\s*[:=])\s*(\d+)", text)
    return int(found[1]) if found else 0

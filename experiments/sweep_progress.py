"""How far a sweep is: jobs leave a mark when they end, a thread of the parent counts the marks.

Works with any launcher whose jobs see the sweep's folder. A bar in a terminal, else a line every tenth of the way.

Knows nothing of what a job does.
"""

from __future__ import annotations

import atexit
import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from threading import Event, Thread

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

MARKS = ".progress"
POLL = 0.2  # seconds


class Marks:
    """One small file per ended job below the sweep's folder; its name ends in how the job ended."""

    def __init__(self, sweep_folder: Path) -> None:
        self._folder = sweep_folder / MARKS

    def reset(self) -> None:
        """Forget the marks of an earlier try."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)

    def leave(self, job: str, status: str, folder: str) -> None:
        """Called where the job ran. Raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / f"{job}.{status}").write_text(folder)

    def count(self) -> Counter[str]:
        """Jobs ended so far, by how."""
        return Counter(path.suffix[1:] for path in self._folder.glob("*.*"))

    def folders(self) -> dict[str, list[Path]]:
        """How jobs ended → their folders. A mark that a full disk left empty is none."""
        ended: dict[str, list[Path]] = {}
        for path in sorted(self._folder.glob("*.*")):
            folder = path.read_text()
            if folder:
                ended.setdefault(path.suffix[1:], []).append(Path(folder))
        return ended

    def remove(self) -> None:
        """The sweep is over."""
        shutil.rmtree(self._folder, ignore_errors=True)


class ProgressThread:
    """Shows the marks while the launcher works in the main thread."""

    def __init__(self, name: str, num_jobs: int, marks: Marks) -> None:
        self._name, self._num_jobs, self._marks = name, num_jobs, marks
        self._over = Event()
        self._thread = Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        """Returns at once; also stops by itself when the process ends early, so that the terminal stays sane."""
        atexit.register(self.stop)
        self._thread.start()

    def stop(self) -> None:
        """Show the last state and return."""
        self._over.set()
        self._thread.join()
        atexit.unregister(self.stop)

    def _watch(self) -> None:
        console = Console(stderr=True, highlight=False)
        if console.is_terminal:
            self._bar(console)
        else:
            self._lines()

    def _bar(self, console: Console) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        with Progress(*columns, console=console) as bar:
            task = bar.add_task(f"sweep {self._name}", total=self._num_jobs, note="")
            while True:
                over = self._over.wait(POLL)
                count = self._marks.count()
                bar.update(task, completed=count.total(), note=_note(count))
                if over:
                    return

    def _lines(self) -> None:
        start, shown = time.monotonic(), -1
        while True:
            over = self._over.wait(POLL)
            count = self._marks.count()
            tenth = 10 * count.total() // max(self._num_jobs, 1)
            if tenth > shown:
                shown = tenth
                seconds = time.monotonic() - start
                text = f"sweep {self._name}: {count.total()}/{self._num_jobs} jobs, {seconds:.0f} s {_note(count)}"
                print(text.rstrip(), file=sys.stderr, flush=True)
            if over:
                return


def _note(count: Counter[str]) -> str:
    return ", ".join(f"{count[status]} {status}" for status in ("skipped", "failed") if count[status])

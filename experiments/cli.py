"""How a run ends at the keyboard: one paragraph for what the user can mend, a traceback for what only we can.

Exit codes: 0 done, 1 a bug or failed jobs, 2 something the user can mend, 130 interrupted.

Knows nothing of what runs.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from hydra.errors import CompactHydraException, HydraException, InstantiationException
from omegaconf.errors import InterpolationKeyError, MissingMandatoryValue, OmegaConfBaseException

from experiments.composition import explain_composition, explain_null_option
from experiments.errors import UserError

ELSEWHERE = "choose another folder (hydra.run.dir=... or hydra.sweep.dir=...)"
ADVICE = {
    errno.ENOSPC: "The disk is full: free some space and run the same command again; what was finished is kept.",
    errno.EDQUOT: "Your disk quota is used up: free some space and run the same command again.",
    errno.EACCES: f"Permission was denied: check who owns it, or {ELSEWHERE}.",
    errno.EPERM: f"The system does not permit it: check who owns it, or {ELSEWHERE}.",
    errno.ENOENT: "Check the path.",
    errno.ENOTDIR: f"A file lies where a folder is needed: {ELSEWHERE}.",
    errno.EEXIST: f"A file lies where a folder is needed: {ELSEWHERE}.",
    errno.EISDIR: "It is a folder: name a file.",
    errno.EROFS: f"The file system is read-only: {ELSEWHERE}.",
}


def cli(main: Callable[[], Any]) -> None:
    """Run a Hydra main (or any function without arguments) and end the process as the module says."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises instead of printing; `stop` prints
    try:
        main()
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("\ninterrupted: what was finished is kept; the same command does the rest", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # `| head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Exception as error:
        stop(error)


def stop(error: BaseException) -> NoReturn:
    """Say on stderr what went wrong and exit."""
    sys.exit(tell(error))


def tell(error: BaseException) -> int:
    """Say on stderr what went wrong; returns the exit code. PAGELAB_DEBUG=1 shows the traceback in any case."""
    text = explain(error)
    if text is None or os.environ.get("PAGELAB_DEBUG") == "1":
        traceback.print_exception(error)
    if text is None:
        return 1
    print(f"error: {text}", file=sys.stderr)
    return 2


def explain(error: BaseException) -> str | None:
    """One paragraph for an error that the user can mend; None for a bug."""
    match error:
        case UserError():
            return str(error)
        case InstantiationException():
            return _explain_instantiation(error)
        case MissingMandatoryValue():
            key = getattr(error, "full_key", None) or "a value"
            return f"{key} must be given: add {key}=... to the command."
        case InterpolationKeyError():
            return f"{error.full_key} takes its value from a setting that was deleted with ~: leave the ~ away."
        case CompactHydraException() | HydraException() | OmegaConfBaseException():
            if told := explain_composition(error):
                return told
            lines = [str(error), *(str(error.__cause__).splitlines()[:1] if error.__cause__ else [])]
            return "\n".join(line for line in lines if line.strip())
        case ValueError() if str(error).startswith("Config group override must be"):
            return explain_null_option()
        case MemoryError():
            advice = "Take a smaller workload (workload.limit=...) or fewer parallel jobs."
            return str(error) or f"There is not enough memory. {advice}"
        case OSError() if error.errno is not None:
            place = f"{error.filename}: " if error.filename else ""
            return f"{place}{error.strerror}. {ADVICE.get(error.errno, '')}".strip()
    if type(error).__name__ == "TerminatedWorkerError":  # joblib's, which a plain run never imports
        return (
            "A worker process was killed, most likely for want of memory. What was finished is kept; run the same "
            "command with fewer parallel jobs (hydra.launcher.n_jobs=1)."
        )
    return None


def describe(error: BaseException) -> str:
    """One paragraph for any error, bugs included."""
    return explain(error) or f"{type(error).__name__}: {error}"


def _explain_instantiation(error: BaseException) -> str:
    key, cause = "", error
    while isinstance(cause, InstantiationException):
        found = re.search(r"full_key: (\S+)", str(cause))
        key = found[1] if found else key
        if cause.__cause__ is None:
            break
        cause = cause.__cause__
    text = str(cause) if isinstance(cause, InstantiationException | UserError | ValueError) else describe(cause)
    if isinstance(cause, TypeError):
        text = str(cause)
        if "not supported between" in text or "expected " in text or "must be " in text:
            given = ", ".join(told for told in sys.argv[1:] if told.startswith(f"{key.rpartition('.')[2]}."))
            text = f"a setting has a value of the wrong kind{f' (given: {given})' if given else ''}: {text}"
    return f"{key}: {text}" if key and not text.startswith(key) else text

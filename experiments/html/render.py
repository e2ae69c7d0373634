"""Templates to one self-contained HTML file.

Everything from the data is escaped by jinja; a content security policy forbids the page to load or send anything, and
lets run only the scripts that the page carries, told by a hash of them.

Knows nothing of what is shown.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from experiments.wording import number

TEMPLATES = Path(__file__).parent / "templates"


def render_page(template: str, script: str | None = None, **values: Any) -> str:
    """The page of `templates/<template>.html.j2`; `script`: a JavaScript file beside it that the page carries."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "count": count, "number": number}
    style = (TEMPLATES / "style.css").read_text("utf-8")
    code = (TEMPLATES / script).read_text("utf-8") if script else ""
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    if code:
        policy += f"; script-src 'sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}'"
    return environment.get_template(f"{template}.html.j2").render(
        style=Markup(style), script=Markup(code), policy=policy, **values
    )


def percent(share: float | None, digits: int = 1) -> str:
    """0.1234 as "12.3 %"; nothing for None and NaN."""
    return "" if share is None or share != share else f"{share:.{digits}%}".replace("%", "\N{NO-BREAK SPACE}%")


def count(value: float) -> str:
    """1234567 as "1,234,567"."""
    return f"{value:,.0f}"

"""Code blocks of the documents, and running them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def blocks(document: str, language: str) -> list[str]:
    """The blocks of one language in a document, by its path from the project's root."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def run_blocks(document: str) -> dict[str, object]:
    """Runs the Python blocks one after another in one namespace, in the present directory; returns the namespace."""
    namespace: dict[str, object] = {"__name__": document}
    for block in blocks(document, "python"):
        exec(compile(block, document, "exec"), namespace)
    return namespace

"""MkDocs hook: links to files of the repository outside docs/ become plain text with their path."""

import os
import re
from pathlib import Path
from typing import Any

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^)#]+)(?:#[^)]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Rewrites links that leave docs/; a target that does not exist stays a link, which the strict build reports."""
    docs = Path(config["docs_dir"]).resolve()
    folder = docs / Path(page.file.src_uri).parent

    def plain(found: re.Match[str]) -> str:
        target = Path(os.path.normpath(folder / found[2]))
        if target.is_relative_to(docs) or not target.exists():
            return found[0]
        path = str(target.relative_to(docs.parent))
        return f"`{path}`" if found[1].strip("`") in path else f"{found[1]} (`{path}`)"

    return LINK.sub(plain, markdown)

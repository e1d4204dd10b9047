"""What a Python file says without its comments and its layout."""

import ast
import threading

from dreamproof.base.files import text_hash

_PARSER = threading.Lock()
"""Python 3.11 counts the depth of all trees that it builds in one place, so two threads may not parse at once."""


def syntax_hash(source: bytes) -> str | None:
    """The hash of Python source without comments and layout; None if it cannot be parsed."""
    try:
        with _PARSER:
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError, SystemError):
        return None
    return text_hash(ast.dump(tree))

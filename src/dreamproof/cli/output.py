"""Standard output that may go away (a closed pipe or terminal) without ending the verb or changing its exit code."""

import errno
import os
import sys
from typing import Any, TextIO

GONE = (errno.EPIPE, errno.EIO)


class Output:
    """Passes everything on to a stream; once its reader is gone, output is dropped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.gone = False

    def write(self, text: str) -> int:
        """Writes, or drops the text if the reader is gone."""
        try:
            self._guarded(lambda: self._stream.write(text))
        except UnicodeEncodeError:  # a name that is no text, or a terminal that knows less than UTF-8
            self._guarded(lambda: self._stream.write(self._known(text)))
        return len(text)

    def _known(self, text: str) -> str:
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        return text.encode(encoding, "replace").decode(encoding)

    def flush(self) -> None:
        """Flushes what was written."""
        self._guarded(self._stream.flush)

    def _guarded(self, act: Any) -> None:
        if self.gone:
            return
        try:
            act()
        except UnicodeEncodeError:
            raise
        except (OSError, ValueError) as error:  # ValueError: the stream was closed
            if isinstance(error, OSError) and error.errno not in GONE:
                raise
            self.gone = True
            _discard(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _discard(stream: TextIO) -> None:
    """Lets what is still buffered go nowhere: the interpreter flushes once more when it ends."""
    try:
        target = stream.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, target)
        os.close(nowhere)
    except (OSError, ValueError):
        return


def is_gone() -> bool:
    """Whether the reader of the standard output is gone."""
    return isinstance(sys.stdout, Output) and sys.stdout.gone

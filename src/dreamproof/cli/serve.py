"""`dreamproof serve`: the studies in a browser."""

from pathlib import Path
from typing import Annotated

import typer

from dreamproof.cli.printing import print_text


def serve(
    studies: Annotated[
        list[Path], typer.Argument(metavar="STUDY…", help="Study files, study folders, or folders of study folders.")
    ],
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 takes a free one.")] = 8765,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Address; any but loopback needs a token.")
    ] = "127.0.0.1",
    token: Annotated[
        bool, typer.Option("--token", help="Ask for a token on loopback too, on machines that others use.")
    ] = False,
    allow_host: Annotated[
        list[str] | None, typer.Option("--allow-host", metavar="NAME", help="One more name of this server.")
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open a browser.")] = False,
) -> None:
    """Show studies in a browser, live and read-only."""
    import gc
    import webbrowser

    from dreamproof.base.errors import BadInput

    gc.enable()
    try:
        from dreamproof.web.server import ServeOptions
        from dreamproof.web.server import serve as serve_studies
    except ModuleNotFoundError as error:
        raise BadInput(f"serve needs {error.name}", "pip install 'dreamproof[web]'") from None
    options = ServeOptions(host, port, token, tuple(allow_host or ()))

    def show_page(address: str) -> None:
        if open_page:
            webbrowser.open(address)

    serve_studies(studies, options, print_text, show_page)

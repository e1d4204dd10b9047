"""`dreamproof schema`: the JSON Schema of a study file."""

from dreamproof.cli.printing import print_json


def schema() -> None:
    """Print the JSON Schema of study files, for editors."""
    from dreamproof.settings.study import Study

    print_json(Study.model_json_schema())

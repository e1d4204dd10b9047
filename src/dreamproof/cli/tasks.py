"""`dreamproof tasks`: the tasks that a study can name."""

from dreamproof.cli.printing import JsonOption, print_json, print_text, table

HEADER = ["task", "mt30", "obs", "act", "steps", "back end", "return", "cost", "named costs"]
NOTE = "obs, act: sizes; steps: agent steps of an episode; return, cost: means of random actions"


def tasks(json: JsonOption = False) -> None:
    """List every built-in task with its sizes, its back end and the mean return and cost of random actions."""
    from dreamproof.settings.task_list import built_in_tasks

    found = built_in_tasks()
    if json:
        print_json({"tasks": [task._asdict() for task in found]})
        return
    rows = [
        ["–" if part is None else str(part) for part in (*task[:-1], ", ".join(task.costs) or None)] for task in found
    ]
    print_text(table(HEADER, rows))
    print_text(NOTE)

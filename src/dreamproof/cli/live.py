"""What `run` shows while it works: a live table on a terminal, one line per event elsewhere."""

import sys
import time
from typing import TYPE_CHECKING, Any

from dreamproof.base.safe_text import one_line
from dreamproof.base.text import shown_conditions

if TYPE_CHECKING:
    from rich.live import Live

    from dreamproof.study.ledger.events import Row
    from dreamproof.study.supervisor import Supervisor

KEPT_LINES = 6


def event_line(row: "Row") -> str | None:
    """An event as one line for a person; None for those that are not worth one."""
    name = row["event"]
    if name == "attempt_started":
        what = f"{row['work']} {' '.join(row['cells'])}"
        return f"{row['attempt']} started: {what}"
    if name == "attempt_ended":
        reason = f" — {row['evidence'][0]}" if row["evidence"] and row["cause"] != "completed" else ""
        return f"{row['attempt']} ended: {row['cause']}{reason}"
    if name == "train_proven":
        return f"{row['cell']} trained: {row['agent_steps']:,} agent steps, checkpoint {row['parameter_hash'][:12]}"
    if name == "notified":
        outcome = "sent" if row["sent"] else f"not sent: {row.get('reason')}"
        return f"notification of {row['on']} by {row['way']}: {outcome}"
    texts = {
        "liveness_changed": "{attempt} is {state}: {reason}",
        "remedy": "remedy {action}: {reason}",
        "cell_stopped": "{cell} stopped: {reason}",
        "cell_reopened": "{cell} reopened",
        "cell_quarantined": "{cell} is quarantined: {file} {reason}",
        "cell_released": "{cell} is readable again and leaves quarantine",
        "ledger_shortened": "the ledger ended after event {found}, although {recorded} were recorded",
        "breaker_tripped": "breaker: {reason}",
        "stop_requested": "stop requested by {by}",
        "clock_jumped": "{reason}: not billed",
        "budget_reached": "budget reached: {spent:.2f} of {budget:g} spent",
        "budget_warned": "{spent:.2f} of the budget of {budget:g} is spent",
        "proof_lost": "{cell}: proof lost: {reason}",
        "false_alarm": "false alarm: {reason}",
        "foreign_run_found": "{cell} is running (not ours): {evidence}",
        "foreign_run_changed": "{cell} (not ours) is {state}: {reason}",
        "foreign_run_ended": "{cell}: the run that is not ours ended: {reason}",
        "unproven": "{cell} is unproven: {reason}",
        "replica_frozen": "{cell} is no longer finite: {reason}",
    }
    return texts[name].format(**row) if name in texts else None


def evaluated_line(rows: "list[Row]") -> str:
    """Evaluations of one cell, with as many episodes each, as one line."""
    conditions = ", ".join(shown_conditions([row["condition"] for row in rows]))
    each = " each" if len(rows) > 1 else ""
    return f"{rows[0]['cell']} evaluated under {conditions}: {rows[0]['episodes']} episodes{each}"


class View:
    """Shows progress; a terminal that went away silences it and ends nothing."""

    def __init__(self, plain: bool) -> None:
        self._lines: list[str] = []
        self._evaluated: list[Row] = []
        self._live: Live | None = None
        self._silent = False
        self._notice: str | None = None
        self._plain = plain or not sys.stdout.isatty()

    def __enter__(self) -> "View":
        if not self._plain:
            from rich.live import Live

            self._live = Live(refresh_per_second=2, transient=False)
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._show_evaluated()
        if self._live is not None:
            self._guarded(self._live.stop)

    def show(self, text: str) -> None:
        """Shows one line."""
        self._show_evaluated()
        line = f"{time.strftime('%H:%M:%S')} {one_line(text)}"
        self._lines = [*self._lines, line][-KEPT_LINES:]
        if self._live is None:
            self._guarded(lambda: print(line, flush=True))

    def event(self, row: "Row") -> None:
        """Shows an event; evaluations of one cell that follow each other wait to become one line."""
        if row["event"] == "eval_proven":
            if any((row["cell"], row["episodes"]) != (one["cell"], one["episodes"]) for one in self._evaluated):
                self._show_evaluated()
            self._evaluated.append(row)
            return
        line = event_line(row)
        if line is not None:
            self.show(line)

    def tick(self, supervisor: "Supervisor") -> None:
        """Redraws the table; without one, says what a person should know once."""
        self._show_evaluated()
        if self._live is None and supervisor.notice not in (None, self._notice):
            self.show(f"waiting: {supervisor.notice}")
        self._notice = supervisor.notice
        if self._live is not None and not self._silent:
            live = self._live
            self._guarded(lambda: live.update(self._picture(supervisor)))

    def _show_evaluated(self) -> None:
        rows, self._evaluated = self._evaluated, []
        if rows:
            self.show(evaluated_line(rows))

    def _guarded(self, show: Any) -> None:
        if self._silent:
            return
        try:
            show()
        except (OSError, ValueError):  # a closed terminal: EIO, or a closed file
            self._silent = True

    def _picture(self, supervisor: "Supervisor") -> Any:
        from rich.console import Group
        from rich.text import Text

        from dreamproof.cli.running import running_table, terminal_width

        running = supervisor.running_cells()
        table = running_table(running, supervisor.study.metric.name, terminal_width())
        lines = [self._title(supervisor), table, *self._lines]
        return Group(*map(Text, lines))  # evidence may hold brackets, which are no markup

    def _title(self, supervisor: "Supervisor") -> str:
        state = supervisor.state
        trained = sum(state.trained(cell) for cell in state.cells.values())
        evaluated = sum(map(state.evaluated, state.eval_cells.values()))
        counts = f"trained {trained}/{len(state.cells)}, evaluated {evaluated}/{len(state.eval_cells)}"
        notice = f" — {supervisor.notice}" if supervisor.notice else ""
        return f"{supervisor.study.name}: {counts}{notice}"

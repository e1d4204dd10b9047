"""Which arms may train in one pack: those that share a compile; and how many packs the missing cells become."""

from dreamproof.base.errors import BadInput
from dreamproof.settings.cell import CELL_SETTINGS
from dreamproof.settings.strict import validate
from dreamproof.settings.study import Study
from dreamproof.settings.traced import static_key
from dreamproof.study.ledger.state import StudyState
from dreamproof.study.plan.gap import Gap, PlanQueries, jobs


def pack_groups(study: Study) -> dict[str, str]:
    """Arms of one task that differ in traced settings only share a group; with a command every arm is its own."""
    model = CELL_SETTINGS.get(study.trainer) if isinstance(study.trainer, str) else None
    if model is None:
        return {arm: arm for arm in study.arms}
    settings = {arm: study.merged_settings(arm) for arm in study.arms}
    return {
        arm: f"{study.task_of(arm)} {static_key(validate(model, value, f'{study.name}, arm {arm}'))}"
        for arm, value in settings.items()
    }


def count_jobs(state: StudyState, waiting: Gap) -> int:
    """How many attempts the cells that nothing works on become, packed as `run` packs them."""
    study = state.study
    assert study is not None
    try:
        groups = pack_groups(study)
    except BadInput:  # `run` refuses these settings; here they only concern an estimate
        groups = {arm: arm for arm in study.arms}
    queries = PlanQueries(lambda cell: True, lambda cell: cell.kept_agent_steps, groups)
    return sum(1 for _ in jobs(state, waiting, queries))

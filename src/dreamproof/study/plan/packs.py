"""Which arms may train in one pack: those that share a compile."""

from dreamproof.settings.cell import CELL_SETTINGS
from dreamproof.settings.strict import validate
from dreamproof.settings.study import Study
from dreamproof.settings.traced import static_key


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

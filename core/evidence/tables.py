"""The tables of the evidence, each a data frame per measurement.

What `python -m precompute evidence --table` prints and the page Evidence shows. Knows
numpy and pandas; no model.
"""

from collections.abc import Callable

import pandas as pd

from core.evidence.ablation import ablation_table
from core.evidence.changes import calibration_table, changes_table
from core.evidence.collapse import collapse_table
from core.evidence.damping import damping_table
from core.evidence.groups import group_table
from core.evidence.lds import lds_table, sample_table
from core.evidence.own_group import own_group_table
from core.evidence.paired import paired_table
from core.evidence.removal import removal_table
from core.evidence.sizes import sizes_table
from core.evidence.stored import Evidence
from core.evidence.strength import strength_table
from core.evidence.timesteps import observations_table, timestep_table

TABLES: dict[str, Callable[[Evidence, str], pd.DataFrame]] = {
    "lds": lds_table,
    "samples": sample_table,
    "paired": paired_table,
    "damping": damping_table,
    "strength": strength_table,
    "sizes": sizes_table,
    "ablation": ablation_table,
    "calibration": calibration_table,
    "timesteps": timestep_table,
    "changes": changes_table,
    "removal": removal_table,
    "observations": observations_table,
    "collapse": collapse_table,
    "groups": group_table,
    "own-group": own_group_table,
}


def make_table(evidence: Evidence, table: str, measurement: str) -> pd.DataFrame:
    """Return a table by its name.

    Raises:
        LookupError: If there is no such table; the message lists those there are.
    """
    if table not in TABLES:
        raise LookupError(
            f"There is no table '{table}'. Choose one of {', '.join(TABLES)}."
        )
    return TABLES[table](evidence, measurement)

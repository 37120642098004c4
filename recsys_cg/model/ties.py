"""Events of one user at one time: a basket, a page of ratings. They have no order, and training may lend them one.

Predicted strictly, each of them comes from what the user did before the basket, and that two things lie in one basket
teaches nothing. Where a log is made of baskets most of what it knows is lost so. In order, one after the other as if
bought in sequence, the next one comes from those before it as well. The query knows which of the two it is asked for:
the gap to its target is 0 s within a basket and longer otherwise, and requests always ask the latter.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from recsys_cg.model.inputs import Sequences

__all__ = ["mix_ties"]


def mix_ties(sequences: Sequences, *, share: float, seed: int, epoch: int) -> Sequences:
    """Shuffle events of one user and time among themselves, and let a share of such groups be predicted in order.

    A pure function of the arguments. Groups of one event stay as they are.

    Args:
        sequences: the training events, predicted strictly.
        share: of the groups, those whose events are each predicted from the one before; in [0, 1]. 0 changes nothing.
        seed: of shuffle and choice.
        epoch: number of the epoch; each draws anew.
    """
    if share <= 0.0:
        return sequences
    rng = np.random.default_rng([seed, epoch, 1])
    count = sequences.events
    user_start = np.repeat(sequences.starts[:-1], np.diff(sequences.starts))
    group = np.where(sequences.before < 0, user_start, sequences.before + 1)
    order = np.lexsort((rng.random(count, dtype=np.float32), group))
    is_chosen = (rng.random(count, dtype=np.float32) < share)[group]
    place = np.arange(count)
    return replace(
        sequences,
        items=sequences.items[order],
        codes=sequences.codes[order],
        weights=sequences.weights[order],
        before=np.where(is_chosen & (place > group), place - 1, sequences.before),
        skips=None if sequences.skips is None else sequences.skips[order],
        context=None if sequences.context is None else sequences.context[order],
    )

"""What each figure of the report means, in one sentence, printed with the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from recsys_cg.evaluation.metrics import METRICS, Metric

__all__ = ["METHOD", "define"]

_AT_K: Final = {
    "recall": "share of a query's targets that are among its first {k} candidates, averaged over queries",
    "hit_rate": "share of queries with at least one target among the first {k} candidates",
    "ndcg": "sum of 1 / log2(rank + 1) over the targets among the first {k}, divided by the same sum for an ideal "
    "list, averaged over queries",
    "mrr": "1 / rank of the first target among the first {k}, 0 where there is none, averaged over queries",
    "precision": "number of targets among the first {k}, divided by {k}, averaged over queries",
    "map": "sum over the targets among the first {k} of the precision at their rank, divided by the number of "
    "targets, averaged over queries",
    "recall_ips": "share of targets among the first {k} candidates, each target weighed by the inverse of its clipped "
    "propensity (see propensity) and of its query's number of targets, divided by the sum of the weights",
    "catalogue_coverage": "share of the candidates that are in the first {k} of at least one query",
    "fill_rate": "share of the {k} places of all lists that hold an item",
    "gini": "Gini coefficient of how often each candidate is in a first {k}: 0 all equally, near 1 a few items only",
    "entropy": "Shannon entropy of the candidates' shares of all first {k}, divided by its maximum: 1 all equally",
    "novelty": "mean over shown items of log(total / (training count + 1)) / log(total): 0 the bestseller, 1 unseen",
    "head_share": "share of the shown items, first {k} of all queries, that are head items",
    "torso_share": "share of the shown items, first {k} of all queries, that are torso items",
    "tail_share": "share of the shown items, first {k} of all queries, that are tail items",
    "cold_share": "share of the shown items, first {k} of all queries, that are cold items",
    "between_user_overlap": "items common to the first {k} of two different users, divided by the longer list, "
    "averaged over a seeded sample of pairs of users",
}

METHOD: Final = {
    "never_retrieved": "number of candidates that are in no query's first {k}",
    "exposure_curve": "share of all places of the first {k} that the most shown share of the candidates takes",
    "ci95": "2.5% and 97.5% quantiles over bootstrap samples of whole users; [0, 1] where fewer than two users count",
    "buckets": "a query counts in head, torso, tail or cold when it has a target there, and only those targets count; "
    "head items make up the first half of the training events, torso the next 30%, tail the rest, cold had none",
    "by_history_length": "queries grouped by the number of events of the user strictly before the query",
    "random_exposure": "targets that the log marks as shown uniformly at random, without the incumbent's choice",
    "limits": "a log holds what the incumbent showed: an item that was never shown cannot have been chosen, so no "
    "figure here says how it would have done, and a system that shows other items than the incumbent is undervalued",
    "candidates": "items of the whole catalogue alive at the query's time; nothing is sampled",
    "lists": "hits are counted by item, never by score; an approximate index is asked for a list of each k, as it "
    "serves them, everything else once for the largest k",
    "history": "what the user did strictly before the query's time; events of the same instant are not in it; an empty "
    "one is measured with the encoder's own vector for it, where the service answers with the most popular items",
}


def define(ks: Sequence[int], primary_k: int, metrics: Mapping[str, Metric] = METRICS) -> dict[str, str]:
    """Return name -> sentence for every figure at every k; a metric from outside is defined by its own docstring."""
    sentences = {f"{name}@{k}": text.format(k=k) for name, text in _AT_K.items() for k in ks}
    own = {name: (metric.__doc__ or "not documented").strip().splitlines()[0] for name, metric in metrics.items()}
    sentences |= {f"{name}@{k}": own[name] for name in metrics if name not in _AT_K for k in ks}
    return sentences | {name: text.format(k=primary_k) for name, text in METHOD.items()}

"""A report such as an evaluation of MovieLens 100K writes: plausible figures, made up for the tests."""

from __future__ import annotations

import math
from typing import Any

from recsys_cg.config.release import GatesConfig
from recsys_cg.release.gates import conclude, judge

NAME = "20261129T192233Z-1a2b3c4d"
SHARES = [round(0.02 * step, 2) for step in range(51)]
QUERIES = {"overall": 9430, "head": 3861, "torso": 2954, "tail": 2563, "cold": 52}
WIDTHS = {"overall": 0.012, "head": 0.018, "torso": 0.02, "tail": 0.024, "cold": 0.07}
RECALL = {
    "two_tower": {"overall": 0.412, "head": 0.548, "torso": 0.391, "tail": 0.236, "cold": 0.115},
    "previous_release": {"overall": 0.405, "head": 0.551, "torso": 0.378, "tail": 0.218, "cold": 0.096},
    "popularity": {"overall": 0.281, "head": 0.602, "torso": 0.104, "tail": 0.0, "cold": 0.0},
    "popularity_recent": {"overall": 0.297, "head": 0.611, "torso": 0.131, "tail": 0.014, "cold": 0.019},
    "item_knn": {"overall": 0.361, "head": 0.556, "torso": 0.312, "tail": 0.124, "cold": 0.0},
    "ease": {"overall": 0.389, "head": 0.571, "torso": 0.349, "tail": 0.161, "cold": 0.0},
    "ials": {"overall": 0.372, "head": 0.561, "torso": 0.333, "tail": 0.132, "cold": 0.0},
}
CONCENTRATION = {
    "two_tower": (0.871, 0.61, 3.1),
    "previous_release": (0.842, 0.64, 3.4),
    "popularity": (0.121, 0.94, 14.0),
    "popularity_recent": (0.188, 0.92, 12.0),
    "item_knn": (0.662, 0.74, 5.0),
    "ease": (0.701, 0.72, 4.6),
    "ials": (0.634, 0.77, 5.4),
}
MIX = {
    "two_tower": (0.31, 0.36, 0.315, 0.015),
    "previous_release": (0.34, 0.36, 0.29, 0.01),
    "popularity": (0.97, 0.03, 0.0, 0.0),
    "popularity_recent": (0.93, 0.06, 0.01, 0.0),
    "item_knn": (0.52, 0.34, 0.14, 0.0),
    "ease": (0.48, 0.35, 0.17, 0.0),
    "ials": (0.53, 0.34, 0.13, 0.0),
}


def measured(mean: float, half: float) -> dict[str, Any]:
    return {"mean": mean, "ci95": [max(mean - half, 0.0), min(mean + half, 1.0)]}


def bucket_entry(mean: float, bucket: str) -> dict[str, Any]:
    half = WIDTHS[bucket]
    entry: dict[str, Any] = {"queries": QUERIES[bucket], "users": min(QUERIES[bucket], 943)}
    for k, factor in ((20, 0.42), (100, 1.0), (500, 1.8)):
        value = min(mean * factor, 0.98)
        entry |= {
            f"recall@{k}": measured(value, half),
            f"hit_rate@{k}": measured(value, half),
            f"ndcg@{k}": measured(value * 0.31, half * 0.4),
            f"mrr@{k}": measured(value * 0.12, half * 0.2),
            f"recall_ips@{k}": measured(value * 0.78, half * 1.3),
        }
    return entry


def system_entry(name: str) -> dict[str, Any]:
    entry: dict[str, Any] = {bucket: bucket_entry(mean, bucket) for bucket, mean in RECALL[name].items()}
    overall = RECALL[name]["overall"]
    bins = {"0": (61, 0.74), "1-4": (402, 0.83), "5-19": (1630, 0.94), "20-49": (2871, 1.02), "50-199": (4466, 1.05)}
    entry["by_history_length"] = {
        label: {"queries": queries, "recall@100": measured(overall * factor, 0.9 / math.sqrt(queries))}
        for label, (queries, factor) in bins.items()
    }
    return entry


def coverage_entry(name: str) -> dict[str, Any]:
    covered, gini, sharpness = CONCENTRATION[name]
    scale = 1 - math.exp(-sharpness)
    shares = dict(zip(("head", "torso", "tail", "cold"), MIX[name], strict=True))
    return {
        "queries": QUERIES["overall"],
        "catalogue_coverage@100": covered,
        "gini@100": gini,
        "entropy@100": 1 - gini * 0.4,
        "between_user_overlap@100": gini * 0.5,
        "novelty@100": 0.62 - gini * 0.3,
        **{f"{bucket}_share@100": share for bucket, share in shares.items()},
        "never_retrieved": round(1682 * (1 - covered)),
        "exposure_curve": {
            "k": 100,
            "items": SHARES,
            "exposure": [round((1 - math.exp(-sharpness * share)) / scale, 4) for share in SHARES],
        },
    }


def comparisons() -> list[dict[str, Any]]:
    found = []
    for name in list(RECALL)[1:]:
        for bucket, mean in RECALL[name].items():
            difference, half = RECALL["two_tower"][bucket] - mean, WIDTHS[bucket] * 0.55
            found.append(
                {
                    "system": "two_tower",
                    "against": name,
                    "group": bucket,
                    "metric": "recall@100",
                    "queries": QUERIES[bucket],
                    "difference": difference,
                    "ci95": [difference - half, difference + half],
                    "p_value": 0.001 if abs(difference) > half else 0.21,
                }
            )
    return found


def measured_report() -> dict[str, Any]:
    """Return a report before it is judged."""
    return {
        "schema": 1,
        "release": NAME,
        "encoder": "9f2c1b7a4e6d8c0f" * 4,
        "dataset": "4b7de0a1c2f39586" * 4,
        "created": "2026-11-29T19:31:02Z",
        "protocol": {
            "split": "test",
            "cutoff": "1998-03-30T07:15:12Z",
            "k": [20, 100, 500],
            "primary_k": 100,
            "queries": 9430,
            "users": 943,
            "users_unseen_in_training": 118,
            "candidates": 1682,
            "filter_seen": True,
            "propensity": {
                "source": "modelled from popularity, exponent 0.5; no propensity was logged",
                "clip": 0.01,
                "clipped_share": 0.0,
                "effective_sample_size": 5120.4,
                "targets": 9430,
            },
            "bootstrap_samples": 1000,
            "seed": 42,
            "definitions": {
                "recall@100": "share of a query's targets that are among its first 100 candidates, mean over queries",
                "ndcg@100": "sum of 1 / log2(rank + 1) over the targets among the first 100, divided by the ideal sum",
                "gini@100": "Gini coefficient of how often each candidate is in a first 100: 0 all equally",
                "ci95": "2.5% and 97.5% quantiles over bootstrap samples of whole users",
            },
        },
        "systems": {name: system_entry(name) for name in RECALL},
        "coverage": {name: coverage_entry(name) for name in RECALL},
        "comparisons": comparisons(),
        "index": {
            "kind": "scann",
            "is_exact": False,
            "k": 100,
            "queries": 2000,
            "recall_vs_exact@100": 0.9934,
            "ci95": [0.992, 0.9947],
            "by_bucket": {"head": 0.996, "torso": 0.994, "tail": 0.989, "cold": 0.981},
            "fill_rate": 1.0,
            "latency_ms": {"p50": 0.061, "p99": 0.148, "queries": 500},
            "exact_latency_ms": {"p50": 1.24, "p99": 1.61, "queries": 100},
            "seconds": 3.1,
            "bytes": 612_352,
            "parameters": {"leaves": 82, "leaves_to_search": 21, "reorder": 300},
            "why": "ScaNN: the cheapest of 14 settings that found 99% of exact search's results",
            "operating_points": [
                {"microseconds": 18, "recall": 0.912},
                {"microseconds": 24, "recall": 0.951},
                {"microseconds": 31, "recall": 0.972},
                {"microseconds": 44, "recall": 0.986},
                {
                    "microseconds": 61.04,
                    "recall": 0.9934,
                    "chosen": True,
                    "leaves": 82,
                    "leaves_to_search": 21,
                    "reorder": 300,
                },
                {"microseconds": 97, "recall": 0.998},
            ],
        },
        "vectors": {"count": 1682, "dim": 64, "not_finite": 0, "max_norm_error": 6.1e-08},
        "geometry": {
            "alignment": 0.714,
            "uniformity": -3.412,
            "mean_pairwise_similarity": 0.083,
            "effective_rank": 51.7,
            "norm_popularity_correlation": 0.11,
        },
        "freshness": {"stale_fraction": 0.0, "items_without_vector": 0, "catalogue_age_hours": 3.2},
        "catalogue": {
            "near_duplicates": {
                "least_similarity": 0.98,
                "searched": 1682,
                "items": 41,
                "groups": 19,
                "examples": [
                    {
                        "items": [
                            {"item_id": "266", "title": "Kull the Conqueror (1997)"},
                            {"item_id": "680", "title": "Kull <the> Conqueror"},
                        ],
                        "size": 2,
                        "similarity": 0.9991,
                    },
                    {
                        "items": [{"item_id": "1", "title": None}, {"item_id": "2", "title": "B"}],
                        "size": 9,
                        "similarity": 0.985,
                    },
                ],
            }
        },
        "drift": {
            "against": "20261122T192233Z-0a0b0c0d",
            "probes": 1000,
            "churn@100": 0.318,
            "probe_recall@100": {"current": 0.409, "previous": 0.398},
            "probe_index_recall@100": {"current": 0.992, "previous": 0.991},
            "nearest_distance": {"ks": 0.021, "p_value": 0.083, "mean": 0.412, "previous_mean": 0.405},
            "query_norm": {"ks": 0.0, "p_value": 1.0, "mean": 1.0, "previous_mean": 1.0},
            "mean_pairwise_similarity": {"current": 0.21, "previous": 0.2},
        },
    }


def sample_report() -> dict[str, Any]:
    """Return a report that passed its gates."""
    report = measured_report()
    return conclude(report, judge(report, GatesConfig(min_coverage=0.5, max_churn=0.6), {}))


def refused_report() -> dict[str, Any]:
    """Return a report of a release that lost the tail."""
    report = measured_report()
    for entry in report["comparisons"]:
        if (entry["against"], entry["group"]) == ("previous_release", "tail"):
            entry |= {"difference": -0.064, "ci95": [-0.081, -0.047], "p_value": 0.001}
    report["systems"]["two_tower"]["tail"] = bucket_entry(0.154, "tail")
    report["index"] |= {"recall_vs_exact@100": 0.931, "ci95": [0.925, 0.937]}
    return conclude(report, judge(report, GatesConfig(min_coverage=0.5, max_churn=0.6), {}))


def sample_training(epochs: int = 14) -> dict[str, Any]:
    """Return an encoder's training record."""
    rows = []
    for epoch in range(1, epochs + 1):
        decay = math.exp(-epoch / 4)
        rows.append(
            {
                "epoch": epoch,
                "loss": 5.1 + 2.1 * decay,
                "validation_recall": 0.42 - 0.2 * decay - 0.0011 * max(epoch - 10, 0) ** 2,
                "candidates": 1536.0,
                "masked": 212.4,
                "temperature": 0.07 + 0.02 * (1 - decay),
                "seconds": 6.1,
                "examples_per_s": 13_120.0,
                "geometry": {
                    "alignment": 0.7 + 0.5 * decay,
                    "uniformity": -3.5 + 1.4 * decay,
                    "mean_pairwise_similarity": 0.08 + 0.3 * decay,
                    "effective_rank": 53 - 30 * decay,
                },
            }
        )
    return {
        "schema": 1,
        "negatives": [
            {"kind": "in_batch", "count": 1024, "alpha": 1.0},
            {"kind": "popularity", "count": 512, "alpha": 1.0},
        ],
        "correction": {"form": "standard", "strength": 1.0},
        "loss": "softmax",
        "mask_history": True,
        "parameters": 412_161,
        "mined_negatives": {
            "anchors": 200,
            "sampled": 4000,
            "later_interacted": 320,
            "false_negative_share": 0.08,
            "ci95": [0.072, 0.088],
        },
        "stopped": "no better validation recall in 4 epochs",
        "epochs": rows,
    }


def sample_mined() -> list[dict[str, Any]]:
    """Return rows of an audit of mined negatives."""
    return [
        {
            "anchor_titles": "Alien (1979) | Aliens (1986)",
            "mined_item_id": "7",
            "mined_title": "Twelve Monkeys (1995)",
            "score": 0.8123,
            "rank": 12,
            "later_interacted": True,
        },
        {
            "anchor_titles": "Alien (1979) | Aliens (1986)",
            "mined_item_id": "<8>",
            "mined_title": "",
            "score": 0.75,
            "rank": 31,
            "later_interacted": False,
        },
    ]


def sample_examples() -> list[dict[str, Any]]:
    """Return users with titles, some of them awkward."""
    history = ["Toy Story (1995)", "Star Wars (1977)", "Fargo (1996)", "Contact (1997)", "Alien (1979)"]
    retrieved = [
        ("Empire Strikes Back, The (1980)", "head"),
        ("Blade Runner (1982)", "head"),
        ("2001: A Space Odyssey (1968)", "torso"),
        ("Brazil (1985)", "torso"),
        ("Cité des enfants perdus, La (1995)", "tail"),
        ("Aliens (1986)", "head"),
        ("Twelve Monkeys (1995)", "head"),
        ("Delicatessen (1991)", "tail"),
        ("Solaris (Solyaris) (1972)", "tail"),
        ("Strange Days (1995)", "torso"),
    ]
    awkward = ["<script>alert(1)</script>", "طعم گيلاس (1997)", "七人の侍 (1954)", "\"Quotes\" & 'ends' <b>bold</b>"]
    return [
        {
            "user": "196",
            "history": [{"title": title, "bucket": "head"} for title in history],
            "targets": [{"title": "Brazil (1985)", "bucket": "torso"}],
            "retrieved": [
                {"title": title, "bucket": bucket, "score": 0.83 - 0.021 * place}
                for place, (title, bucket) in enumerate(retrieved)
            ],
        },
        {
            "user": "u<302>",
            "history": awkward * 4,
            "targets": ["七人の侍 (1954)"],
            "retrieved": [{"title": title, "score": 0.6 - 0.05 * n} for n, title in enumerate(awkward + history)],
        },
        {"user": "new", "history": [], "targets": [], "retrieved": history},
    ]


def sample_history(count: int = 6) -> list[dict[str, Any]]:
    """Return reports of earlier releases, oldest first."""
    found = []
    for week in range(count):
        report = sample_report() if week != 3 else refused_report()
        report |= {"release": f"2026{10 + week // 5:02d}{1 + 7 * (week % 4):02d}T040000Z-{week:08x}"}
        report["created"] = f"2026-{10 + week // 5:02d}-{1 + 7 * (week % 4):02d}T04:31:00Z"
        mean = 0.36 + 0.009 * week - 0.004 * (week % 2)
        report["systems"]["two_tower"]["overall"] = bucket_entry(mean, "overall")
        report["coverage"]["two_tower"]["catalogue_coverage@100"] = 0.8 + 0.011 * week
        found.append(report)
    return found

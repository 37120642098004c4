"""`make bench-quality`: this model beside baselines and stock TFRS, on the same splits of several data sets.

    python -m tests.benchmarks.bench_quality                     every set, three seeds: hours
    SETS=movielens-t,hidden SEEDS=1 VARIANTS=two_tower ...       some pieces; VARIANTS=baselines for all of these
    GLOBO=FOLDER ONLINE_RETAIL=FILE BEAUTY=FOLDER ...            where those data are; without, they are skipped by name
    OVERRIDES="training.epochs=1" ...                            other settings for our trainings, to try the bench
    QUICK=1 ...                                                  MovieLens 100K, one seed, a training cut short

Sets: movielens-t (strict time), movielens-l and movielens-l-shuffled (leave-one-out, two tie rules), hidden (300 items
kept from training), ablation (correction x negatives on the hidden set), globo, online-retail, beauty (Amazon Beauty as
S3-Rec published it, leave-one-out). A piece is one variant on one set with one seed, in a process of its own; its
result is kept in ``.bench/quality/pieces``, so a bench that was killed goes on, and ``.bench/quality.json`` is made of
all pieces that are there. A piece is measured again when its dataset, its part of the configuration or the code that it
runs has changed.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recsys_cg.artifacts import digest_json, write_text_atomically
from recsys_cg.errors import SourceError
from tests.benchmarks.quality_baselines import BASELINES, RECENT_HOURS
from tests.benchmarks.quality_figures import make_figures, print_tables, tabulate
from tests.benchmarks.quality_run import CORRECTIONS, NEGATIVES, STOCK, overrides_of
from tests.benchmarks.quality_sets import SETS, QualitySet, SkippedError
from tests.benchmarks.record import FOLDER, write_record

ROOT = Path(__file__).parents[2]
ABLATION = tuple(f"ablation_{correction}_x_{negatives}" for correction in CORRECTIONS for negatives in NEGATIVES)
_ORDINARY = tuple(name for name in BASELINES if name not in RECENT_HOURS)
VARIANTS: Mapping[str, tuple[str, ...]] = {
    "movielens-100k": ("two_tower", *_ORDINARY, *STOCK),
    "movielens-t": ("two_tower", *_ORDINARY, *STOCK),
    "movielens-l": ("two_tower", *_ORDINARY, *STOCK),
    "movielens-l-shuffled": ("two_tower", *_ORDINARY),
    "hidden": ("two_tower", "without_cold_start"),
    "ablation": ABLATION,
    "globo": ("two_tower", *BASELINES, *STOCK),
    "online-retail": ("two_tower", *_ORDINARY, *STOCK),
    "beauty": ("two_tower", *(name for name in _ORDINARY if name != "popularity_recent"), *STOCK),  # dates are made up
}
_DATA_OF = {"ablation": "hidden"}
_CODE_OF_OURS = ("recsys_cg/model", "recsys_cg/bonuses.py", "recsys_cg/repeats.py", "recsys_cg/trends.py")
_CODE_OF = {
    **dict.fromkeys(BASELINES, ("recsys_cg/evaluation/baselines", "tests/benchmarks/quality_baselines.py")),
    **dict.fromkeys(STOCK, ("tests/benchmarks/quality_tfrs.py",)),
}


@dataclass(frozen=True)
class Piece:
    """One variant on one set with one seed."""

    quality: QualitySet
    variant: str
    seed: int

    @property
    def key(self) -> str:
        """Digest of what decides the result."""
        sections = ("evaluation",) if self.variant in _CODE_OF else ("evaluation", "model", "training", "index")
        config = self.quality.config
        if self.variant not in _CODE_OF:
            config = self.quality.configure(self.seed, *overrides_of(self.variant, config))
        return digest_json(
            {
                "dataset": self.quality.data.manifest.digest,
                "config": config.section(*sections),
                "code": _digest_code(*_CODE_OF.get(self.variant, _CODE_OF_OURS)),
            }
        )

    def path(self, folder: Path) -> Path:
        """Return where the result is kept."""
        return _pieces(folder) / self.quality.name / f"{self.variant}-{self.seed}.json"

    def result(self, folder: Path) -> dict[str, Any] | None:
        """Return the kept result, or None where there is none of this key."""
        path = self.path(folder)
        known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        return known if known.get("key") == self.key else None

    def run(self, folder: Path) -> None:
        """Measure it in a process of its own and keep the result."""
        print(f"{self.quality.name}: {self.variant}, seed {self.seed}", flush=True)
        out = self.path(folder)
        new = out.with_name(f"{out.stem}-{self.key[:12]}.new")
        command = [sys.executable, "-m", "tests.benchmarks.quality_run"]
        arguments = [self.quality.name, self.variant, str(self.seed), str(folder), str(new)]
        done = subprocess.run([*command, *arguments], check=False, env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"})
        if done.returncode != 0:
            raise SystemExit(f"{self.quality.name}: {self.variant}, seed {self.seed}, ended with {done.returncode}")
        result = json.loads(new.read_text(encoding="utf-8"))
        write_text_atomically(out, json.dumps({"key": self.key, **result}, indent=1, ensure_ascii=False) + "\n")
        new.unlink()


def _pieces(folder: Path) -> Path:
    """Return where results are kept; those of a trial are apart."""
    return folder / "quality" / ("trials" if os.environ.get("OVERRIDES") else "pieces")


def _digest_code(*places: str) -> str:
    """Return a digest of Python sources that comments and docstrings do not change."""
    files = [file for place in places for file in ([ROOT / place] if place.endswith(".py") else _modules(place))]
    return digest_json({str(file.relative_to(ROOT)): _bare(file) for file in files})


def _modules(place: str) -> Iterator[Path]:
    yield from sorted((ROOT / place).rglob("*.py"))


def _bare(file: Path) -> str:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            body[0].value.value = None
    return ast.dump(tree)


def _named(variable: str, default: tuple[str, ...], known: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(name for name in os.environ.get(variable, "").split(",") if name) or default
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"{variable}: {', '.join(unknown)} unknown; there is: {', '.join(known)}")
    return names


def run_pieces(names: tuple[str, ...], seeds: int, folder: Path) -> tuple[dict[str, QualitySet], dict[str, str]]:
    """Measure what is not there yet; return the sets by name, and those that were skipped -> why."""
    everything = tuple(dict.fromkeys(variant for each in VARIANTS.values() for variant in each))
    wanted = _named("VARIANTS", everything, (*everything, "baselines"))
    wanted += BASELINES if "baselines" in wanted else ()
    opened: dict[str, QualitySet] = {}
    skipped: dict[str, str] = {}
    for name in names:
        try:
            quality = opened[_DATA_OF.get(name, name)] = SETS[_DATA_OF.get(name, name)](folder)
        except (SkippedError, SourceError) as reason:
            skipped[name] = str(reason)
            print(f"{name}: skipped, {reason}", flush=True)
            continue
        for seed in range(seeds):
            for variant in VARIANTS[name]:
                piece = Piece(quality, variant, seed)
                if variant in wanted and piece.result(folder) is None:
                    piece.run(folder)
    return opened, skipped


def collect(folder: Path, opened: Mapping[str, QualitySet], *, is_quick: bool) -> list[dict[str, Any]]:
    """Read the results that are there, but those of a set just opened whose data, settings or code have changed."""
    pieces = []
    for path in sorted(_pieces(folder).glob("*/*.json")):
        piece = json.loads(path.read_text(encoding="utf-8"))
        name = path.parent.name
        if (name == "movielens-100k") != is_quick:
            continue
        if name in opened and Piece(opened[name], piece["variant"], piece["seed"]).key != piece["key"]:
            print(f"{name}: {piece['variant']}, seed {piece['seed']}, is of other data, settings or code: left out")
            continue
        pieces.append(piece)
    return pieces


def main(folder: Path = FOLDER) -> Path:
    """Measure the pieces asked for, and write ``folder/quality.json`` of all that are there."""
    started = time.monotonic()
    is_quick = os.environ.get("QUICK", "") not in {"", "0"}
    every = tuple(name for name in VARIANTS if name != "movielens-100k")
    names = ("movielens-100k",) if is_quick else _named("SETS", every, every)
    seeds = 1 if is_quick else int(os.environ.get("SEEDS", "3"))
    opened, skipped = run_pieces(names, seeds, folder)
    pieces = collect(folder, opened, is_quick=is_quick)
    tables = tabulate(pieces)
    print_tables(tables)
    kind = "-quick" if is_quick else "-trial" if os.environ.get("OVERRIDES") else ""
    return write_record(
        f"quality{kind}", make_figures(pieces), started, folder,
        protocol="whole catalogue ranked, seen items filtered; ours measured through its index; baselines and the "
        "number of epochs of TFRS chosen on validation queries; mean over the seeds, smallest and largest beside it",
        skipped=skipped, tables=tables,
    )  # fmt: skip


if __name__ == "__main__":
    main()

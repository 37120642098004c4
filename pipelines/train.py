"""Train an encoder on a dataset directory: ``python -m pipelines.train --config F --dataset DIR --output DIR``."""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from recsys_cg.artifacts import digest_json, verify, write_stage
from recsys_cg.config import load_config
from recsys_cg.errors import RecsysError

__all__ = ["main", "run"]


def run(argv: Sequence[str] | None = None) -> Path:
    """Train and write a sealed encoder directory; return its path.

    A run that was killed and is started again with the same arguments goes on from its last whole epoch.

    Raises:
        RecsysError: the configuration, the dataset or the training is at fault.
    """
    parser = argparse.ArgumentParser(prog="pipelines.train", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="project file (TOML)")
    parser.add_argument("--dataset", type=Path, required=True, help="dataset directory")
    parser.add_argument("--output", type=Path, required=True, help="encoder directory to write")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override, e.g. model.dim=64")
    arguments = parser.parse_args(argv)
    config = load_config(arguments.config, arguments.set)
    dataset = verify(arguments.dataset, kind="dataset")

    from recsys_cg.model.training import train_encoder  # noqa: PLC0415 - TensorFlow loads after the inputs are checked

    inputs, sections = {"dataset": dataset.digest}, config.section("model", "training")
    key = digest_json({"inputs": inputs, "config": sections, "seed": config.project.seed})
    output: Path = arguments.output.absolute()
    checkpoints = output.with_name(f"{output.name}-checkpoints")
    with write_stage(output, kind="encoder", key=key, inputs=inputs, config=sections, seed=config.project.seed) as (
        directory,
        info,
    ):
        trained = train_encoder(
            arguments.dataset,
            directory,
            model=config.model,
            training=config.training,
            seed=config.project.seed,
            checkpoints=checkpoints,
        )
        info.update(trained)
    shutil.rmtree(checkpoints, ignore_errors=True)
    return output


def main() -> int:
    """Run, and turn an error of ours into one line and its exit code."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        run()
    except RecsysError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())

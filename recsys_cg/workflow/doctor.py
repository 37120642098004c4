"""What this machine and its packages can do, found without importing anything heavy."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from recsys_cg.errors import WorkdirBusyError

__all__ = ["Check", "examine", "examine_store", "examine_workdir"]

SCANN_TENSORFLOW = "2.20"
"""The TensorFlow minor version that ScaNN 1.4.2 is compiled against."""


@dataclass(frozen=True)
class Check:
    """One thing examined.

    Attributes:
        name: what was looked at.
        state: ``"ok"``; ``"absent"``: something optional is not there, or a leftover does no harm; ``"fails"``.
        detail: what was found and what follows.
        mend: one command or line that mends it, empty where nothing is wrong.
    """

    name: str
    state: Literal["ok", "absent", "fails"]
    detail: str
    mend: str = ""


def examine(
    *,
    version_of: Callable[[str], str | None] | None = None,
    cpu_flags: frozenset[str] | None = None,
    system: str | None = None,
) -> list[Check]:
    """Check Python, processor, and the packages that must fit each other.

    Args:
        version_of: gives a package's installed version or None; for tests.
        cpu_flags: the processor's features; None reads /proc/cpuinfo where there is one.
        system: ``platform.system()``; for tests.
    """
    version_of = version_of or _installed_version
    system = system or platform.system()
    checks = [_check_python(), *_check_processor(_cpu_flags() if cpu_flags is None else cpu_flags, system)]
    checks += _check_tensorflow(version_of)
    checks += _check_scann(version_of, system)
    for extra, package, use in (
        ("train", "scipy", "training and the baselines"),
        ("beam", "apache-beam", "building datasets"),
        ("serve", "ai-edge-litert", "encoding queries"),
        ("serve", "fastapi", "the lookup service"),
        ("report", "jinja2", "HTML reports"),
        ("report", "implicit", "the iALS baseline"),
    ):
        checks.append(_check_package(package, version_of(package), extra, use))
    return checks


def examine_store(store: str, *, mend: bool = False) -> list[Check]:
    """Look through a release store; see `recsys_cg.release.repair.repair`.

    Args:
        store: directory or URL.
        mend: remove leftovers and move a broken CURRENT to the newest whole release.
    """
    from recsys_cg.release.repair import repair
    from recsys_cg.release.store import Store

    if "://" not in store and not Path(store).is_dir():
        return [Check("store", "fails", f"{store}: no such directory", "give the store of a project, e.g. work/store")]
    found = repair(Store(store), apply=mend)
    if not found:
        return [Check("store", "ok", store)]
    return [
        Check(
            "store",
            "ok" if one.is_mended else "fails" if one.is_serious else "absent",
            f"{one.path}: {one.problem}" + (f"; {one.mend}" if one.is_mended else ""),
            "" if one.is_mended else one.mend,
        )
        for one in found
    ]


def examine_workdir(workdir: Path, *, mend: bool = False) -> list[Check]:
    """Look for stages that a killed run left half written; the next run that builds such a stage removes them, too.

    Args:
        workdir: of a project.
        mend: remove them.
    """
    from recsys_cg.artifacts import find_leftovers, lock_workdir, remove_leftovers

    if not workdir.is_dir():
        return [Check("workdir", "fails", f"{workdir}: no such directory", "give the --workdir of a project")]
    folders = [folder for folder in sorted(workdir.iterdir()) if folder.is_dir()]
    found = [path for folder in folders for path in find_leftovers(folder)]
    if not found:
        return [Check("workdir", "ok", str(workdir))]
    try:
        with lock_workdir(workdir):
            for folder in folders if mend else ():
                remove_leftovers(folder)
    except WorkdirBusyError as error:
        return [Check("workdir", "ok", f"{len(found)} unfinished, being written: {error}")]
    detail = "left half written by a run that was killed"
    if mend:
        return [Check("workdir", "ok", f"{path}: {detail}; removed") for path in found]
    command = f"recsys-cg doctor --workdir {workdir} --mend"
    return [Check("workdir", "absent", f"{path}: {detail}", command) for path in found]


def _installed_version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _check_python() -> Check:
    found = platform.python_version()
    if (3, 11) <= sys.version_info[:2] <= (3, 13):
        return Check("python", "ok", found)
    return Check("python", "fails", f"{found} is outside 3.11 to 3.13", "create the environment with python3.11")


def _cpu_flags() -> frozenset[str]:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    lines = [line.partition(":")[2] for line in text.splitlines() if line.startswith(("flags", "Features"))]
    return frozenset(lines[0].split()) if lines else frozenset()


def _check_processor(flags: frozenset[str], system: str) -> Iterator[Check]:
    machine = platform.machine()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if machine in ("x86_64", "AMD64") and flags and "avx" not in flags:
        mend = 'set index.kind = "exact" and train on a machine with AVX'
        yield Check("processor", "fails", f"{machine} without AVX: TensorFlow and ScaNN stop at import", mend)
    else:
        yield Check("processor", "ok", f"{system} {machine}, {cores} core(s)")


def _check_tensorflow(version_of: Callable[[str], str | None]) -> Iterator[Check]:
    found = version_of("tensorflow")
    if found is None:
        yield Check("tensorflow", "absent", "not installed: no training (serving needs none)", _install("train"))
        return
    scann = version_of("scann")
    if scann is not None and not found.startswith(f"{SCANN_TENSORFLOW}."):
        detail = f"{found} beside scann {scann}, which is compiled against {SCANN_TENSORFLOW}: importing scann dies"
        yield Check("tensorflow", "fails", detail, f"pip install 'tensorflow~={SCANN_TENSORFLOW}.0'")
    else:
        yield Check("tensorflow", "ok", found)
    legacy = version_of("tf-keras")
    minor = ".".join(found.split(".")[:2])
    if legacy is None:
        detail = "tf-keras is missing: TFRS 0.7.7 cannot work on Keras 3"
        yield Check("keras 2", "fails", detail, f"pip install 'tf-keras~={minor}.0'")
    elif not legacy.startswith(f"{minor}."):
        detail = f"tf-keras {legacy} does not belong to TensorFlow {found}"
        yield Check("keras 2", "fails", detail, f"pip install 'tf-keras~={minor}.0'")
    elif os.environ.get("TF_USE_LEGACY_KERAS", "1").lower() not in ("1", "true"):
        detail = f"TF_USE_LEGACY_KERAS={os.environ['TF_USE_LEGACY_KERAS']} puts Keras 3 in force: TFRS cannot work"
        yield Check("keras 2", "fails", detail, "unset TF_USE_LEGACY_KERAS")
    else:
        yield Check("keras 2", "ok", f"tf-keras {legacy}")
    yield _check_package("tensorflow-recommenders", version_of("tensorflow-recommenders"), "train", "training")


def _check_scann(version_of: Callable[[str], str | None], system: str) -> Iterator[Check]:
    found = version_of("scann")
    if found is not None:
        yield Check("scann", "ok", found)
    elif system != "Linux":
        detail = f"no wheel for {system}: exact search is used, which suits catalogues up to some 100,000 items"
        yield Check("scann", "absent", detail)
    else:
        yield Check("scann", "absent", "not installed: exact search is used", _install("index"))


def _check_package(package: str, found: str | None, extra: str, use: str) -> Check:
    if found is not None:
        return Check(package, "ok", found)
    return Check(package, "absent", f"not installed: needed for {use}", _install(extra))


def _install(extra: str) -> str:
    return f"pip install 'recsys-cg[{extra}]'"

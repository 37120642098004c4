"""What a release and its report must show before the store takes them in, and how they are brought in."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from recsys_cg.artifacts import MANIFEST, Manifest, read_manifest, seal, verify, write_text_atomically
from recsys_cg.errors import ArtifactCorruptError, ArtifactMissingError, GateRefusedError, StoreError
from recsys_cg.release.contents import check_vectors, open_release
from recsys_cg.release.files import PARTIAL, copy_files, move_into_place, remove_directory
from recsys_cg.release.gates import UNFORCEABLE
from recsys_cg.schema import ReleaseFiles, ReportFiles

__all__ = ["check_report", "check_same", "place_release", "place_report", "read_report"]


def read_report(directory: Path) -> dict[str, Any]:
    """Return report.json of ``directory``.

    Raises:
        ArtifactMissingError: there is none.
        ArtifactCorruptError: it is no JSON object.
    """
    path = directory / ReportFiles.JSON
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ArtifactMissingError(f"{directory} has no {ReportFiles.JSON}") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ArtifactCorruptError(f"{path} is damaged: {error}") from error
    if not isinstance(report, dict):
        raise ArtifactCorruptError(f"{path} is damaged: it holds no JSON object")
    return report


def check_report(report: Mapping[str, Any], name: str) -> None:
    """Refuse a report that is not of ``name`` or does not say that ``name`` may be published.

    Raises:
        StoreError: it is of another release.
        GateRefusedError: ``published`` is not true, no gate was judged, or a gate failed that no reason overrides
            (`recsys_cg.release.gates.UNFORCEABLE`) or for which none is recorded under ``forced``.
    """
    if report.get("release") != name:
        raise StoreError(f"the report is of release {report.get('release')!r}, not of {name}; evaluate {name}")
    gates = [gate for gate in report.get("gates") or [] if isinstance(gate, Mapping)]
    failed = [str(gate.get("name")) for gate in gates if gate.get("passed") is not True]
    if report.get("published") is not True or not gates:
        raise GateRefusedError(
            f"{name} was not judged fit to be published"
            + (f": {', '.join(failed)} failed" if failed else "; its report holds no verdict")
        )
    final = [gate for gate in failed if gate in UNFORCEABLE]
    if final:
        raise GateRefusedError(f"{name}: {', '.join(final)} failed, and no reason overrides that")
    forced = report.get("forced")
    reason = forced.get("reason") if isinstance(forced, Mapping) else None
    if failed and not (isinstance(reason, str) and reason.strip()):
        raise GateRefusedError(f"{name}: {', '.join(failed)} failed, and no reason to publish all the same is recorded")


def place_release(release: Path, report: Path, final: Path) -> None:
    """Bring a release with its report to ``final``, whole and verified, or leave ``final`` alone.

    A release that is there already, as after a publisher was killed before it moved CURRENT, is verified and used.

    Raises:
        StoreError: another release of this name is there.
        ArtifactError: a file is missing or damaged, or encoder and vectors do not belong together.
        NonFiniteError, MetricMismatchError: the vectors cannot be searched.
    """
    manifest = read_manifest(release, kind="release")
    if final.exists():
        check_same(final, manifest)
        place_report(report, final / ReleaseFiles.REPORT)
        return
    with _partial(final) as temporary:
        names = [name for name in manifest.files if not name.startswith(f"{ReleaseFiles.REPORT}/")]
        copy_files(release, temporary, [*names, MANIFEST], link=True)
        check_vectors(open_release(temporary).vectors)
        place_report(report, temporary / ReleaseFiles.REPORT)
        move_into_place(temporary, final)


def check_same(stored: Path, manifest: Manifest) -> None:
    """Verify the release at ``stored`` and compare it with ``manifest``.

    Raises:
        StoreError: it is another release of the same name.
        ArtifactError: it is damaged.
    """
    if verify(stored, kind="release").digest != manifest.digest:
        raise StoreError(f"{stored} exists and holds another release of this name; give the new one another name")


def place_report(report: Path, final: Path, *, extra: Mapping[str, str] | None = None) -> None:
    """Bring a report directory to ``final``, replacing an older one; seal it when it is not sealed already.

    Args:
        report: report.json and whatever stands beside it; verified when it has a manifest.
        final: where it goes.
        extra: further files, name -> text, written and sealed with it.
    """
    sealed = (report / MANIFEST).is_file() and not extra
    if (report / MANIFEST).is_file():
        names = sorted(verify(report).files)
    else:
        names = sorted(path.relative_to(report).as_posix() for path in report.rglob("*") if path.is_file())
    with _partial(final) as temporary:
        copy_files(report, temporary, [*names, MANIFEST] if sealed else names)
        for name, text in (extra or {}).items():
            write_text_atomically(temporary / name, text + "\n")
        if not sealed:
            seal(temporary, kind="report", key=final.name)
        if final.exists():
            remove_directory(final)
        move_into_place(temporary, final)


@contextmanager
def _partial(final: Path) -> Iterator[Path]:
    final.parent.mkdir(parents=True, exist_ok=True)
    temporary = final.with_name(f"{PARTIAL}{final.name}-{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise

"""iALS: matrix factorisation of implicit feedback, with the query's history folded in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import linalg, sparse

from recsys_cg.data.co_occurrence import Matrix
from recsys_cg.errors import EnvironmentMismatchError
from recsys_cg.evaluation.baselines.matrices import history_matrix, interaction_matrix
from recsys_cg.evaluation.baselines.scored import recommend_by_score
from recsys_cg.evaluation.baselines.sessions import Sessions

__all__ = ["Ials", "fit_item_factors", "fold_in"]

Floats = NDArray[np.float32]


class Ials:
    """Score items by the dot product of their factors with those of the history, solved for at query time.

    Args:
        factors: [items, dim] item factors.
        alpha: confidence of a meeting is ``1 + alpha * weight``.
        regularisation: of the solved factors.
        decay: weight of a history item against the next more recent one.
        settings: for the report.
    """

    name = "ials"

    def __init__(
        self, factors: Floats, *, alpha: float, regularisation: float, decay: float, settings: Mapping[str, Any]
    ) -> None:
        self.settings = settings
        self._factors, self._alpha, self._decay = factors, alpha, decay
        dim = factors.shape[1]
        self._gram = factors.T @ factors + np.float32(regularisation) * np.eye(dim, dtype=np.float32)

    def recommend(self, batch: pa.Table, k: int, allow: NDArray[np.bool_] | None = None) -> NDArray[np.int32]:
        """See `System.recommend`."""
        return recommend_by_score(self._score, batch, k, len(self._factors), allow)

    def _score(self, batch: pa.Table) -> Floats:
        history = history_matrix(batch, len(self._factors), decay=self._decay)
        scores: Floats = fold_in(history, self._factors, self._gram, self._alpha) @ self._factors.T
        return scores


def fit_item_factors(
    sessions: Sessions, *, dim: int, alpha: float, regularisation: float, iterations: int, seed: int
) -> Floats:
    """Return [items, dim] float32 item factors by alternating least squares.

    Hu, Koren and Volinsky 2008, equations 4 and 5, by the ``implicit`` library; the preference is 1 and the confidence
    ``1 + alpha`` where a user met an item.

    Raises:
        EnvironmentMismatchError: ``implicit`` is not installed.
    """
    try:
        import implicit.cpu.als as solver  # noqa: PLC0415 - an optional part of the report extra
        from threadpoolctl import threadpool_limits  # noqa: PLC0415 - comes with implicit
    except ImportError as error:
        raise EnvironmentMismatchError(
            f"the iALS baseline needs the implicit library: pip install 'recsys-cg[report]' ({error})"
        ) from error
    confidence = sparse.csr_matrix(interaction_matrix(sessions)) * np.float32(1.0 + alpha)
    # implicit runs its own threads and warns when BLAS runs others beneath them.
    with threadpool_limits(limits=1, user_api="blas"):
        model = solver.AlternatingLeastSquares(
            factors=dim,
            regularization=regularisation,
            iterations=iterations,
            random_state=seed,
        )
        model.fit(confidence, show_progress=False)
    return np.asarray(model.item_factors, dtype=np.float32)


def fold_in(history: Matrix, factors: Floats, gram: Floats, alpha: float) -> Floats:
    """Solve ``(Y'Y + lambda I + alpha Y' W Y) u = (1 + alpha) Y' W 1`` for each history.

    Hu, Koren and Volinsky 2008, equation 4, where W = 1 is the equation as trained; as a weight falls to 0 the
    meeting fades into "not met".

    Args:
        history: [queries, items] weights W, above 0 where the item was met.
        factors: [items, dim] Y.
        gram: [dim, dim] ``Y'Y + lambda I``.
        alpha: see `Ials`.

    Returns:
        [queries, dim] float32; zero for an empty history.
    """
    weights = np.sqrt(history.data * np.float32(alpha))
    wanted = np.asarray(history @ factors, dtype=np.float32) * np.float32(1.0 + alpha)
    solved = np.zeros_like(wanted)
    for query in np.flatnonzero(np.diff(history.indptr)):
        part = slice(history.indptr[query], history.indptr[query + 1])
        scaled = factors[history.indices[part]] * weights[part, None]
        # Cholesky in single precision: several times as fast as NumPy's solve, which works in double.
        _, solved[query], failed = linalg.lapack.sposv(gram + scaled.T @ scaled, wanted[query], lower=1, overwrite_a=1)
        if failed:
            raise linalg.LinAlgError(f"iALS: the system of a history with alpha = {alpha} cannot be solved")
    return solved

"""Each loss against a NumPy transcription of its equation, its gradient against central differences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from recsys_cg.config import ModelConfig
from recsys_cg.model.candidates import Candidates
from recsys_cg.model.frameworks import tf
from recsys_cg.model.logits import Exclusions
from recsys_cg.model.own_candidates import OwnCandidates
from recsys_cg.model.task import CorrectedRetrieval

QUERIES, CANDIDATES, DIM = 5, 7, 3
TEMPERATURE, MARGIN, STRENGTH = 0.5, 0.4, 0.7
RNG = np.random.default_rng(3)


def unit(rows: int) -> np.ndarray:
    values = RNG.normal(size=(rows, DIM))
    return values / np.linalg.norm(values, axis=1, keepdims=True)


Q, P, C = unit(QUERIES), unit(QUERIES), unit(CANDIDATES)
POSITIVE_IDS = np.array([0, 1, 2, 3, 0])
CANDIDATE_IDS = np.array([0, 9, 1, 8, 7, 8, 3])
VALID = np.array([True, True, True, True, True, True, False])
LOG_E = RNG.normal(size=CANDIDATES)
LOG_E_POSITIVE = RNG.normal(size=QUERIES)
WEIGHTS = np.array([1.0, 2.0, 0.0, 0.5, 1.5])
ALLOWED = (POSITIVE_IDS[:, None] != CANDIDATE_IDS[None, :]) & VALID[None, :]


def softmax(q: np.ndarray, p: np.ndarray, c: np.ndarray, form: str) -> np.ndarray:
    shift = {"none": 0.0, "standard": STRENGTH, "refined": STRENGTH}[form]
    positive = (q * p).sum(1) / TEMPERATURE - (STRENGTH * LOG_E_POSITIVE if form == "standard" else 0.0)
    negative = np.exp(q @ c.T / TEMPERATURE - shift * LOG_E) * ALLOWED
    return -np.log(np.exp(positive) / (np.exp(positive) + negative.sum(1)))


def symmetric(q: np.ndarray, p: np.ndarray, c: np.ndarray, form: str) -> np.ndarray:
    logits = p @ q.T / TEMPERATURE
    others = (POSITIVE_IDS[:, None] != POSITIVE_IDS[None, :]) & (WEIGHTS > 0)[None, :]
    own = np.exp(np.diag(logits))
    back = -np.log(own / (own + (np.exp(logits) * others).sum(1)))
    return 0.5 * (softmax(q, p, c, form) + back)


def sigmoid(q: np.ndarray, p: np.ndarray, c: np.ndarray, form: str) -> np.ndarray:
    shift = STRENGTH if form == "standard" else 0.0
    positive = (q * p).sum(1) / TEMPERATURE - shift * LOG_E_POSITIVE - 10.0
    negative = q @ c.T / TEMPERATURE - shift * LOG_E - 10.0
    return -np.log(1 / (1 + np.exp(-positive))) - (np.log(1 / (1 + np.exp(negative))) * ALLOWED).sum(1)


def triplet(q: np.ndarray, p: np.ndarray, c: np.ndarray, form: str) -> np.ndarray:
    hardest = np.where(ALLOWED, q @ c.T, -np.inf).max(1)
    return np.maximum(0.0, MARGIN - (q * p).sum(1) + hardest)


def margin(q: np.ndarray, p: np.ndarray, c: np.ndarray, form: str) -> np.ndarray:
    hinge = np.maximum(0.0, MARGIN - (q * p).sum(1)[:, None] + q @ c.T) * ALLOWED
    return hinge.sum(1) / ALLOWED.sum(1)


Transcription = Callable[[np.ndarray, np.ndarray, np.ndarray, str], np.ndarray]
CASES: list[tuple[str, str, Transcription]] = [
    ("softmax", "refined", softmax),
    ("softmax", "standard", softmax),
    ("softmax", "none", softmax),
    ("symmetric", "refined", symmetric),
    ("sigmoid", "standard", sigmoid),
    ("sigmoid", "none", sigmoid),
    ("triplet", "none", triplet),
    ("margin", "none", margin),
]


def task_of(loss: str, form: str, *, chunk: int = 64, **options: object) -> CorrectedRetrieval:
    config = ModelConfig(
        dim=4,
        loss=loss,
        correction=form,
        correction_strength=STRENGTH,
        margin=MARGIN,
        temperature=TEMPERATURE,
        **options,
    )
    return CorrectedRetrieval(config, chunk=chunk)


OWN, OWN_VALID = unit(QUERIES * 2).reshape(QUERIES, 2, DIM), np.array([[True, True], [True, False]] + [[False] * 2] * 3)


@pytest.mark.parametrize(("loss", "form", "transcription"), CASES)
@pytest.mark.parametrize("chunk", [3, 64])
def test_what_a_query_has_for_itself_is_a_negative_of_it_alone(
    loss: str, form: str, transcription: Transcription, chunk: int
) -> None:
    own = OwnCandidates(floats(OWN), tf.constant(OWN_VALID), tf.zeros([QUERIES, 2]))
    candidates = replace(candidates_of(floats(C)), own=own)
    computed = task_of(loss, form, chunk=chunk).per_query(floats(Q), floats(P), candidates, floats(WEIGHTS)).numpy()
    for query in range(QUERIES):  # one more candidate a member, that others may not meet, expected once
        with pytest.MonkeyPatch.context() as patched:
            mine = OWN[query][OWN_VALID[query]]
            patched.setitem(globals(), "ALLOWED", np.pad(ALLOWED, ((0, 0), (0, len(mine))), constant_values=True))
            patched.setitem(globals(), "LOG_E", np.pad(LOG_E, (0, len(mine))))
            expected = transcription(Q, P, np.concatenate([C, mine]), form)[query]
        assert computed[query] == pytest.approx(expected, rel=2e-5, abs=1e-6)


def candidates_of(vectors: tf.Tensor) -> Candidates:
    return Candidates(
        vectors=vectors,
        valid=tf.constant(VALID),
        log_expected=tf.constant(LOG_E, tf.float32),
        log_expected_positive=tf.constant(LOG_E_POSITIVE, tf.float32),
        exclusions=Exclusions(tf.constant(POSITIVE_IDS), tf.constant(CANDIDATE_IDS)),
    )


def floats(values: np.ndarray) -> tf.Tensor:
    return tf.constant(values, tf.float32)


@pytest.mark.parametrize(("loss", "form", "transcription"), CASES)
@pytest.mark.parametrize("chunk", [3, 64])
def test_loss_equals_its_equation(loss: str, form: str, transcription: Transcription, chunk: int) -> None:
    task = task_of(loss, form, chunk=chunk)
    computed = task.per_query(floats(Q), floats(P), candidates_of(floats(C)), floats(WEIGHTS)).numpy()
    np.testing.assert_allclose(computed, transcription(Q, P, C, form), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(("loss", "form", "transcription"), CASES)
@pytest.mark.parametrize("chunk", [3, 64])
def test_gradient_equals_central_differences(loss: str, form: str, transcription: Transcription, chunk: int) -> None:
    task = task_of(loss, form, chunk=chunk)
    inputs = [floats(Q), floats(P), floats(C)]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        value = task(inputs[0], inputs[1], candidates_of(inputs[2]), floats(WEIGHTS))
    gradients = [tf.convert_to_tensor(gradient) for gradient in tape.gradient(value, inputs)]

    def mean_loss(arrays: list[np.ndarray]) -> float:
        return float((transcription(*arrays, form) * WEIGHTS).sum() / WEIGHTS.sum())

    assert float(value) == pytest.approx(mean_loss([Q, P, C]), rel=1e-5)
    for place, gradient in enumerate(gradients):
        expected = np.zeros_like([Q, P, C][place])
        for index in np.ndindex(expected.shape):
            moved = []
            for step in (1e-6, -1e-6):
                arrays = [Q.copy(), P.copy(), C.copy()]
                arrays[place][index] += step
                moved.append(mean_loss(arrays))
            expected[index] = (moved[0] - moved[1]) / 2e-6
        np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-3, atol=2e-5)


def test_queries_of_one_user_or_one_positive_are_no_negatives_of_an_item() -> None:
    owners = np.array([0, 0, 1, 1, 2])
    whole = candidates_of(floats(C))
    held = Exclusions(
        tf.constant(POSITIVE_IDS),
        tf.constant(CANDIDATE_IDS),
        tf.constant(owners, tf.int32),
        tf.zeros([3, CANDIDATES], tf.bool),
    )
    candidates = Candidates(whole.vectors, whole.valid, whole.log_expected, whole.log_expected_positive, held)
    task = task_of("symmetric", "none")
    computed = task.per_query(floats(Q), floats(P), candidates, floats(WEIGHTS)).numpy()
    others = (POSITIVE_IDS[:, None] != POSITIVE_IDS[None, :]) & (owners[:, None] != owners[None, :]) & (WEIGHTS > 0)
    powers = np.exp(P @ Q.T / TEMPERATURE)
    back = -np.log(np.diag(powers) / (np.diag(powers) + (powers * others).sum(1)))
    np.testing.assert_allclose(computed, 0.5 * (softmax(Q, P, C, "none") + back), rtol=2e-5)


def test_the_mean_is_weighted_and_zero_weights_give_zero() -> None:
    task = task_of("softmax", "none")
    each = task.per_query(floats(Q), floats(P), candidates_of(floats(C)), floats(WEIGHTS)).numpy()
    value = float(task(floats(Q), floats(P), candidates_of(floats(C)), floats(WEIGHTS)))
    assert value == pytest.approx((each * WEIGHTS).sum() / 5.0, rel=1e-6)
    assert float(task(floats(Q), floats(P), candidates_of(floats(C)), tf.zeros(QUERIES))) == 0.0


@pytest.mark.parametrize(("loss", "form"), [(loss, form) for loss, form, _ in CASES if form != "none"] + [
    ("triplet", "none"), ("margin", "none")
])  # fmt: skip
def test_a_weight_is_how_often_an_example_counts(loss: str, form: str) -> None:
    task = task_of(loss, form)
    once, often = np.array([1.0, 1.0, 1.0, 0.0, 1.0]), np.array([1.0, 3.0, 0.0, 0.0, 1.0])
    rows = np.repeat(np.arange(QUERIES), often.astype(int))
    each = task.per_query(floats(Q), floats(P), candidates_of(floats(C)), floats(once)).numpy()
    value = float(task(floats(Q), floats(P), candidates_of(floats(C)), floats(often)))
    if loss == "symmetric":  # an example of no weight is no candidate of the others either
        each = task.per_query(floats(Q), floats(P), candidates_of(floats(C)), floats(often)).numpy()
    assert value == pytest.approx(each[rows].mean(), rel=1e-6)
    assert float(task(floats(Q), floats(P), candidates_of(floats(C)), floats(10 * often))) == pytest.approx(value)


@pytest.mark.parametrize(("loss", "form"), [(loss, form) for loss, form, _ in CASES if loss != "symmetric"])
@pytest.mark.parametrize("chunk", [3, 64])
def test_with_every_candidate_excluded_loss_and_gradient_are_finite(loss: str, form: str, chunk: int) -> None:
    task = task_of(loss, form, chunk=chunk)
    whole = candidates_of(floats(C))
    nobody = Candidates(
        whole.vectors, tf.zeros(CANDIDATES, tf.bool), whole.log_expected, whole.log_expected_positive, whole.exclusions
    )
    query = floats(Q)
    with tf.GradientTape() as tape:
        tape.watch(query)
        value = task(query, floats(P), nobody, floats(WEIGHTS))
    gradient = tape.gradient(value, query).numpy()
    assert np.isfinite(float(value))
    assert np.isfinite(gradient).all()
    if loss == "softmax":
        assert float(value) == 0.0
        np.testing.assert_array_equal(gradient, np.zeros_like(Q))


def test_huge_logits_stay_finite() -> None:
    task = task_of("softmax", "none", temperature_min=1e-4)
    value = float(task(floats(Q * 3e4), floats(P), candidates_of(floats(C)), floats(WEIGHTS)))
    assert np.isfinite(value)


def test_temperature_learns_and_stays_within_its_bounds() -> None:
    task = task_of("softmax", "none", temperature_min=0.45, temperature_max=0.55)
    optimizer = tf.keras.optimizers.SGD(100.0)
    with tf.GradientTape() as tape:
        value = task(floats(Q), floats(P), candidates_of(floats(C)), floats(WEIGHTS))
    gradient = tape.gradient(value, task.trainable_variables)
    assert gradient[0] is not None
    optimizer.apply_gradients(zip(gradient, task.trainable_variables, strict=True))
    moved = float(task.temperature.value())
    assert moved != pytest.approx(TEMPERATURE)
    assert moved + 1e-6 >= 0.45
    assert moved - 1e-6 <= 0.55


def test_a_fixed_temperature_is_no_trainable_variable() -> None:
    assert task_of("softmax", "none", learn_temperature=False).trainable_variables == []


def test_the_bias_of_the_sigmoid_loss_is_learned() -> None:
    task = task_of("sigmoid", "none")
    with tf.GradientTape() as tape:
        value = task(floats(Q), floats(P), candidates_of(floats(C)), floats(WEIGHTS))
    assert all(gradient is not None for gradient in tape.gradient(value, task.trainable_variables))
    assert len(task.trainable_variables) == 2

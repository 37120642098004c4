"""The query tower in LiteRT: what turns a user's history into a vector without TensorFlow."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from recsys_cg.data.context import ContextSet
from recsys_cg.errors import (
    ArtifactCorruptError,
    ArtifactMissingError,
    MetricMismatchError,
    SearchError,
)
from recsys_cg.repeats import Repeats
from recsys_cg.schema import EncoderFiles
from recsys_cg.serving.litert import load_graph

__all__ = ["EncoderContract", "QueryEncoder"]

_INPUTS = ("history", "gap_s", "event", "length")
_LARGEST = 32
_UNSIZED = -1
_FORMAT, _FORMAT_WITH_CONTEXT, _FORMAT_WITH_REPEATS = 1, 2, 3
_NORM_TOLERANCE = 1e-3


@dataclass(frozen=True)
class EncoderContract:
    """What ``encoder.json`` promises of the query tower.

    Attributes:
        dim: length of a query vector and of an item vector.
        history_dim: length of a history vector.
        max_history: events of a history that the tower reads, the last ones.
        events: event names; an event's code is its position.
        context: the context features, in the order of the input ``context``; none in encoders of format 1.
        repeat_bonus: what a lookup adds to the similarity of items of the history, where they are candidates; see
            `recsys_cg.repeats`. 0 in encoders of formats 1 and 2.
    """

    dim: int
    history_dim: int
    max_history: int
    events: tuple[str, ...]
    context: ContextSet = field(default_factory=ContextSet)
    repeat_bonus: float = 0.0

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Read ``directory/encoder.json``.

        Raises:
            ArtifactMissingError: there is no such file.
            ArtifactCorruptError: it is not JSON, is of another format, or a value is missing or impossible.
            MetricMismatchError: the encoder was trained with another normalisation than L2.
        """
        path = directory / EncoderFiles.CONTRACT
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            contract = cls(
                int(raw["dim"]),
                int(raw["history_dim"]),
                int(raw["max_history"]),
                tuple(map(str, raw["events"])),
                ContextSet.from_list(raw.get("context", ())),
                float(raw.get("repeat_bonus", 0.0)),
            )
            schema, normalisation = raw["schema"], raw["normalisation"]
        except FileNotFoundError as error:
            raise ArtifactMissingError(f"{directory} holds no encoder: {path.name} is missing") from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ArtifactCorruptError(f"{path} is damaged: {error!r}") from error
        expected = _FORMAT_WITH_CONTEXT if len(contract.context) else _FORMAT
        if contract.repeat_bonus:
            expected = _FORMAT_WITH_REPEATS
        least = min(contract.dim, contract.history_dim, contract.max_history, len(contract.events))
        if not 0.0 <= contract.repeat_bonus <= 2.0:
            raise ArtifactCorruptError(f"{path} has repeat_bonus {contract.repeat_bonus}, expected 0 to 2")
        if schema != expected or least < 1:
            raise ArtifactCorruptError(f"{path} has schema {schema!r} and {contract}: schema {expected} was expected")
        if normalisation != "l2":
            raise MetricMismatchError(f"{path} says normalisation {normalisation!r}; vectors here are L2-normalised")
        return contract

    def repeats(self, vectors: NDArray[np.float32]) -> Repeats | None:
        """Return how items of the history are ranked among ``vectors``, those of the items; None: as any other."""
        return Repeats(vectors, self.repeat_bonus, self.max_history) if self.repeat_bonus else None


class _Runner:
    """One interpreter, sized for ``rows`` until another batch size comes. Not safe to share between threads."""

    def __init__(self, content: bytes, contract: EncoderContract, source: Path) -> None:
        self._interpreter, signature = load_graph(content, source)
        inputs, outputs = signature.get_input_details(), signature.get_output_details()
        _check_signature(inputs, outputs, contract, source)
        self._inputs = [int(inputs[name]["index"]) for name in _input_names(contract)]
        self._output = int(outputs["query"]["index"])
        self.rows = _UNSIZED

    def __call__(self, tensors: Sequence[NDArray[Any]]) -> NDArray[np.float32]:
        interpreter = self._interpreter
        rows = len(tensors[0])
        if rows != self.rows:
            self.rows = _UNSIZED
            for index, tensor in zip(self._inputs, tensors, strict=True):
                interpreter.resize_tensor_input(index, tensor.shape)
            interpreter.allocate_tensors()
            self.rows = rows
        for index, tensor in zip(self._inputs, tensors, strict=True):
            interpreter.set_tensor(index, tensor)
        interpreter.invoke()
        found: NDArray[np.float32] = interpreter.get_tensor(self._output)
        return found


def _input_names(contract: EncoderContract) -> tuple[str, ...]:
    return (*_INPUTS, "context") if len(contract.context) else _INPUTS


def _check_signature(inputs: dict[str, Any], outputs: dict[str, Any], contract: EncoderContract, source: Path) -> None:
    length, width = contract.max_history, contract.history_dim
    expected = {
        "history": ((-1, length, width), np.float32),
        "gap_s": ((-1, length), np.float32),
        "event": ((-1, length), np.int32),
        "length": ((-1,), np.int32),
        "query": ((-1, contract.dim), np.float32),
    }
    if len(contract.context):
        expected["context"] = ((-1, len(contract.context)), np.int32)
    found = {
        name: (tuple(int(size) for size in entry["shape_signature"]), entry["dtype"])
        for name, entry in (inputs | outputs).items()
    }
    for name, (shape, kind) in expected.items():
        got_shape, got_kind = found.get(name, ((), None))
        # LiteRT forgets that an output's batch is dynamic when shapes are folded: compare what follows it.
        if got_kind is not kind or len(got_shape) != len(shape) or got_shape[1:] != shape[1:]:
            raise ArtifactCorruptError(
                f"{source}: tensor {name!r} is {got_shape} {got_kind}, encoder.json asks for {shape} {kind.__name__}"
            )


def _check_queries(queries: NDArray[np.float32], source: Path) -> None:
    if len(queries) == 1:
        one = queries[0]
        if abs(float(one.dot(one)) - 1.0) <= _NORM_TOLERANCE:
            return
    norms = np.einsum("ij,ij->i", queries, queries)
    wrong = np.flatnonzero(~(np.abs(norms - 1.0) <= _NORM_TOLERANCE))
    if not len(wrong):
        return
    if not np.isfinite(norms[wrong]).all():
        raise ArtifactCorruptError(f"{source} gave NaN or infinity for rows {wrong[:5].tolist()} of a batch")
    raise MetricMismatchError(f"{source} gave a vector of norm {np.sqrt(norms[wrong[0]]):.4g}; unit norm was promised")


class QueryEncoder:
    """The exported query tower, on LiteRT.

    Safe to call from many threads: an interpreter serves one call at a time, and up to ``interpreters`` of them are
    made on demand; a call beyond that waits. Each holds its own activations and shares nothing that is written. Taking
    another batch size costs an interpreter time, and a batch gains little beyond two rows, so a batch is encoded in
    parts of 32, 16, 8, 4, 2 and 1 rows, sizes that come often and so keep interpreters of their own.

    Args:
        content: the bytes of ``query.tflite``.
        contract: its shapes.
        source: where it came from, for messages.
        interpreters: calls that run at once, at least 1.
    """

    def __init__(self, content: bytes, contract: EncoderContract, *, source: Path, interpreters: int = 8) -> None:
        self.contract = contract
        self._content = content
        self._source = source
        self._idle = [_Runner(content, contract, source)]
        self._unmade = interpreters - 1
        self._changed = threading.Condition()
        length, width = contract.max_history, contract.history_dim
        tails: tuple[tuple[int, ...], ...] = ((length, width), (length,), (length,), ())
        self._tails = list(zip(_INPUTS, tails, map(np.dtype, ("f4", "f4", "i4", "i4")), strict=True))
        if len(contract.context):
            self._tails.append(("context", (len(contract.context),), np.dtype("i4")))
        self._codes = np.array(contract.context.sizes, np.int32)

    @classmethod
    def open(cls, directory: Path, *, interpreters: int = 8) -> Self:
        """Load ``encoder.json`` and ``query/query.tflite`` below ``directory``.

        Raises:
            ArtifactMissingError: one of the two is not there.
            ArtifactCorruptError: they cannot be read, or do not agree on names, shapes or types.
            MetricMismatchError: the encoder was trained with another normalisation than L2.
        """
        contract = EncoderContract.read(directory)
        path = directory / EncoderFiles.QUERY_LITERT
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ArtifactMissingError(f"{path} cannot be read: {error.strerror}") from error
        return cls(content, contract, source=path, interpreters=interpreters)

    def encode(
        self,
        history: NDArray[np.float32],
        gap_s: NDArray[np.float32],
        event: NDArray[np.int32],
        length: NDArray[np.int32],
        context: NDArray[np.int32] | None = None,
    ) -> NDArray[np.float32]:
        """Encode a batch of histories; `recsys_cg.serving.inputs.history_inputs` makes the arguments.

        Args:
            history: float32 [batch, max_history, history_dim], oldest event first, zeros behind ``length``.
            gap_s: float32 [batch, max_history], seconds to the next event, for the last one to the query; >= 0.
            event: int32 [batch, max_history], event codes.
            length: int32 [batch], 0 to max_history.
            context: int32 [batch, features], of `recsys_cg.serving.context.context_inputs`; None: nothing is known,
                as it must be where the encoder has no context features.

        Returns:
            float32 [batch, dim] of unit norm, row for row. An empty batch gives an empty array.

        Raises:
            SearchError: an array has another shape or type, or a context code is none of its feature's.
            ArtifactCorruptError: a query vector came out with a NaN or an infinity.
            MetricMismatchError: a query vector came out with another norm than one.
        """
        rows = len(length)
        tensors: tuple[NDArray[Any], ...] = (history, gap_s, event, length)
        if len(self._codes) or context is not None:
            tensors = (*tensors, self._context_of(context, rows))
        for (name, tail, kind), value in zip(self._tails, tensors, strict=True):
            if value.shape != (rows, *tail) or value.dtype != kind:
                raise SearchError(
                    f"{name} is {value.dtype} {value.shape}; the query tower reads {kind} {(rows, *tail)}"
                )
        if rows == 1:
            queries = self._run(tensors)
        else:
            queries = np.empty((rows, self.contract.dim), np.float32)
            start = 0
            while start < rows:
                part = slice(start, start + min(_LARGEST, 1 << ((rows - start).bit_length() - 1)))
                queries[part] = self._run([value[part] for value in tensors])
                start = part.stop
        _check_queries(queries, self._source)
        return queries

    def _context_of(self, context: NDArray[np.int32] | None, rows: int) -> NDArray[np.int32]:
        if not len(self._codes):
            raise SearchError("context was given, and the query tower reads none")
        if context is None:
            return np.zeros((rows, len(self._codes)), np.int32)
        if context.shape[-1:] == self._codes.shape and ((context < 0) | (context >= self._codes)).any():
            raise SearchError(f"a context code lies outside 0 to the sizes {self._codes.tolist()} of the features")
        return context

    def _run(self, tensors: Sequence[NDArray[Any]]) -> NDArray[np.float32]:
        runner = self._take(len(tensors[0]))
        try:
            return runner(tensors)
        finally:
            with self._changed:
                self._idle.append(runner)
                self._changed.notify()

    def _take(self, rows: int) -> _Runner:
        """Return a runner that no other call uses: one of this batch size, else a new one, else the longest idle."""
        with self._changed:
            while not self._idle and not self._unmade:
                self._changed.wait()
            for place in range(len(self._idle) - 1, -1, -1):
                if self._idle[place].rows in (rows, _UNSIZED):
                    return self._idle.pop(place)
            if not self._unmade:
                return self._idle.pop(0)
            self._unmade -= 1
        try:
            return _Runner(self._content, self.contract, self._source)
        except BaseException:
            with self._changed:
                self._unmade += 1
                self._changed.notify()
            raise

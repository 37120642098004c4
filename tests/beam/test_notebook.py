"""A job that is started from a notebook is the job that a script starts."""

from __future__ import annotations

import apache_beam as beam
import pytest
from apache_beam import pipeline as pipeline_module
from apache_beam.utils import interactive_utils

from recsys_cg.beam.runner import open_pipeline


def test_a_pipeline_in_ipython_keeps_its_labels_and_needs_no_data_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interactive_utils, "is_in_ipython", lambda: True)
    monkeypatch.setattr(pipeline_module, "is_in_ipython", lambda: True)
    with open_pipeline([]) as pipeline:
        applied = pipeline | "Make numbers" >> beam.Create([1])
    assert applied.producer is not None
    assert applied.producer.full_label.startswith("Make numbers")


def test_beam_is_left_as_it_was() -> None:
    before = pipeline_module.alter_label_if_ipython, pipeline_module.is_in_ipython
    with pytest.raises(ZeroDivisionError), open_pipeline([]):
        raise ZeroDivisionError
    assert (pipeline_module.alter_label_if_ipython, pipeline_module.is_in_ipython) == before

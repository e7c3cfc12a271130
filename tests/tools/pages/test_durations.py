"""Durations as people read them."""

from bert_jax.tools.pages.scales import duration


def test_seconds_in_the_form_of_a_clock():
    assert [duration(x) for x in (5, 125, 3725)] == ["0:05", "2:05", "1:02:05"]

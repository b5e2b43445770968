"""State of user code as text: what `save()` returns is what `restore(state)` gets."""

import numpy as np
import pytest

_saved = pytest.importorskip("beamport._saved", reason="pip install .")


@pytest.mark.parametrize(
    "state",
    [None, True, 3, 2**70, 1.5, float("inf"), "text \0 ü", b"\0\xff", [], [1, [None]], {}, {"dict": {"array": [b"x"]}}],
)
def test_plain_values_come_back_as_they_were(state):
    assert _saved.decode(_saved.encode(state)) == state


@pytest.mark.parametrize("dtype", ["u1", ">i4", "f8", "c16", "?"])
def test_arrays_come_back_with_type_and_shape_and_can_be_changed(dtype):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    back = _saved.decode(_saved.encode({"a": array.T}))["a"]
    assert back.dtype == array.dtype and (back == array.T).all()
    back[0] = 0


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (object(), "`object`"),
        ({1: 2}, "keys that are no texts"),
        (np.array(["x"]), "arrays of numbers"),
        ({"x": {1, 2}}, "`set`"),
        (bytes(200_000), "at most 131072"),
    ],
)
def test_the_rest_is_refused_with_what_to_return(state, said):
    with pytest.raises((TypeError, ValueError), match=said):
        _saved.encode(state)

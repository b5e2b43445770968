"""State of user code as text: what `save()` returns is what `restore(state)` gets."""

import numpy as np
import pytest

_state = pytest.importorskip("beamport._state", reason="pip install .")


@pytest.mark.parametrize(
    "state",
    [
        None,
        True,
        3,
        2**70,
        1.5,
        float("inf"),
        "text \0 ü",
        b"\0\xff",
        [],
        [1, [None]],
        (1, "two"),
        {},
        {1: 2},
        {"dict": {"array": [b"x"]}},
    ],
)
def test_plain_values_come_back_as_they_were(state):
    assert _state.decode(_state.encode(state)) == state


@pytest.mark.parametrize("dtype", ["u1", ">i4", "f8", "c16", "?"])
def test_arrays_come_back_with_type_and_shape_and_can_be_changed(dtype):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    back = _state.decode(_state.encode({"a": array.T}))["a"]
    assert back.dtype == array.dtype and (back == array.T).all()
    back[0] = 0


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (object(), "`state` is a object"),
        (np.array([object()]), "array of Python objects"),
        ({"x": {1, 2}}, r"`state\['x'\]` is a set"),
        (bytes(200_000), "at most 131072"),
    ],
)
def test_the_rest_is_refused_with_what_to_return(state, said):
    with pytest.raises((TypeError, ValueError), match=said):
        _state.encode(state)

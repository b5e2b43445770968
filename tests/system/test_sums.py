"""Accounts that do not add up are found, whatever the test in which a program prints them."""

import json

import pytest
import sums
from conftest import ROOT

EXAMPLES = json.loads((ROOT / "tests/vectors/sums.json").read_text())


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["about"])
def test_a_wrong_account_is_found_and_a_right_one_is_not(example):
    said = example["said"]
    wrong = sums.wrong_lines(said) if isinstance(said, str) else sums.wrong_sums(said)
    assert len(wrong) == example["wrong"], wrong


@pytest.mark.parametrize("example", [e for e in EXAMPLES if e["wrong"]], ids=lambda example: example["about"])
def test_a_wrong_account_fails_the_test_whose_program_prints_it(example):
    said = example["said"]
    with pytest.raises(AssertionError, match="does not add up"):
        sums.printed(said if isinstance(said, str) else json.dumps({"said": said}))

"""The vocabulary: every id has one meaning, and the mirror exchanges sides and nothing else."""

import numpy as np
import pytest

from uqlob_models import tokens


def test_the_vocabulary_has_439_tokens_in_the_documented_layout() -> None:
    assert tokens.VOCABULARY == 439
    assert (tokens.FIRST_EXECUTION, tokens.PAD, tokens.MASK, tokens.UNK) == (432, 436, 437, 438)
    assert tokens.encode(0, 0, 0, 0, 0) == 0
    assert tokens.encode(2, 1, 5, 5, 1) == 431
    assert tokens.encode(1, 0, 2, 3, 1) == (((1 * 2 + 0) * 6 + 2) * 6 + 3) * 2 + 1
    assert tokens.encode(3, 1, 4, 4, 0) == 434


def test_decoding_inverts_encoding_for_every_event_token() -> None:
    ids = np.arange(tokens.PAD)
    assert np.array_equal(tokens.encode(*tokens.decode(ids)), ids)
    assert all((part[-3:] == -1).all() for part in tokens.decode(np.arange(tokens.VOCABULARY)))
    assert len({tuple(row) for row in np.stack(tokens.decode(ids), axis=1)}) == tokens.PAD


def test_attributes_out_of_range_encode_to_unknown_and_ids_out_of_range_are_an_error() -> None:
    assert tokens.encode([0, 5, 0, 0], [2, 0, 0, 0], [0, 0, 6, 0], [0, 0, 0, -1], [0, 0, 0, 0]).tolist() == [tokens.UNK] * 4
    with pytest.raises(ValueError, match="0 to 438"):
        tokens.decode([439])


def test_the_mirror_is_an_involution_that_changes_the_side_alone() -> None:
    mirror = tokens.mirror_map()
    assert np.array_equal(mirror[mirror], np.arange(tokens.VOCABULARY))
    assert mirror[tokens.PAD :].tolist() == [tokens.PAD, tokens.MASK, tokens.UNK]
    before, after = tokens.decode(np.arange(tokens.PAD)), tokens.decode(mirror[: tokens.PAD])
    assert np.array_equal(after.side, 1 - before.side)
    for name in ("type", "volume_bin", "distance_bin", "simultaneous"):
        assert np.array_equal(getattr(before, name), getattr(after, name))

"""Random numbers depend on what they are for, and on nothing else."""

import pytest
import torch

from core.draws import keyed_generator, make_draws


def numbers(*key):
    """Return the first numbers of a keyed generator."""
    return torch.rand(4, generator=keyed_generator(*key)).tolist()


def test_equal_keys_give_equal_numbers_and_other_keys_others():
    """Seed, purpose and every key count, and their boundaries too."""
    assert numbers(0, "a", 1) == numbers(0, "a", 1)
    others = [
        (1, "a", 1),
        (0, "b", 1),
        (0, "a", 2),
        (0, "a"),
        (0, "a1"),
        (0, "a", 1, 1),
    ]
    assert all(numbers(0, "a", 1) != numbers(*key) for key in others)


def test_global_state_is_neither_read_nor_changed():
    """A keyed generator stands apart from torch's own."""
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = numbers(0, "a")
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    assert numbers(0, "a") == first


def test_each_fold_has_one_timestep_in_every_stratum():
    """16 draws in 4 folds over 20 timesteps: every fold covers the four quarters."""
    draws = make_draws(16, (1, 2, 2), 20, keyed_generator(0, "t"), num_folds=4)
    for fold in range(4):
        timesteps = draws.timesteps[4 * fold : 4 * fold + 4]
        assert (timesteps // 5).sort().values.tolist() == [0, 1, 2, 3]


def test_timesteps_are_uniform():
    """Each of 20 timesteps is as frequent, though 7 draws do not divide 20."""
    counts = torch.zeros(20)
    for i in range(3000):
        draws = make_draws(7, (1,), 20, keyed_generator(i, "u"))
        counts += torch.bincount(draws.timesteps, minlength=20)
    expected = 3000 * 7 / 20
    assert (counts - expected).abs().max() < 5 * expected**0.5


def test_a_range_keeps_timesteps_inside():
    """Timesteps of a band lie in the band, the ends included."""
    draws = make_draws(64, (1,), 1000, keyed_generator(0, "r"), timestep_range=(10, 14))
    assert set(draws.timesteps.tolist()) == {10, 11, 12, 13}


def test_bad_requests_say_what_to_do():
    """An empty range or uneven folds give a plain sentence."""
    g = keyed_generator(0, "bad")
    with pytest.raises(ValueError, match="timestep range 5:5 is not inside 0:20"):
        make_draws(4, (1,), 20, g, timestep_range=(5, 5))
    with pytest.raises(ValueError, match="6 draws cannot be split into 4 equal folds"):
        make_draws(6, (1,), 20, g, num_folds=4)

"""How answers are read: what is printed is what was computed, and signs are honest."""

import io
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from scipy.stats import spearmanr

from core.explorer.explorer import Answer, Lens
from core.files import images
from core.methods import METHODS
from core.report import reading
from core.report.how import how_measured

GENERATOR = np.random.default_rng(0)


def influence(scores, errors=None) -> Answer:
    """Return an influence answer with example ids 100, 101, ..."""
    scores = np.asarray(scores, dtype=float)
    errors = np.full(len(scores), np.nan) if errors is None else np.asarray(errors)
    ids = 100 + np.arange(len(scores))
    return Answer(Lens("ekfac"), ids, scores, errors, "exact", 41.3)


def similarity(scores) -> Answer:
    """Return a similarity answer with example ids 100, 101, ..."""
    scores = np.asarray(scores, dtype=float)
    ids, nothing = 100 + np.arange(len(scores)), np.full(len(scores), np.nan)
    return Answer(Lens("clip"), ids, scores, nothing, "exact", float("nan"))


def test_printed_number_times_its_unit_is_the_score_over_n():
    """What people read is the predicted change on removal (Eq. 6), to three digits."""
    for size in (1e-7, 3e-3, 0.99, 1.0, 12.0, 4.5e5):
        answer = influence(size * GENERATOR.normal(size=50))
        scale = reading.scale(answer)
        largest = np.abs(answer.scores).max()
        printed = float(scale.number(largest)) * 10.0**scale.exponent
        assert printed == pytest.approx(largest / 50, rel=5e-3), size
        assert scale.exponent % 3 == 0


def test_number_carries_its_sign_and_zero_has_none():
    scale = reading.scale(influence([500.0, -200.0, 0.0]))
    numbers = [scale.number(score) for score in (500.0, -200.0, -1e-9)]
    assert numbers == ["+167", "−67", "0"]


def test_missing_error_shows_no_plus_minus():
    scale = reading.scale(influence([1.0, 2.0]))
    assert scale.error(float("nan")) == ""
    assert scale.error(0.5).startswith("± ")


@pytest.mark.parametrize(
    ("lens", "source", "said"),
    [
        (
            Lens(),
            "exact",
            "± covers the draws of the training gradients and the draws of this "
            "image's question. It does not cover training the model again.",
        ),
        (
            Lens(measurement="elbo"),
            "sketch",
            "± covers the draws of the training gradients, the draws of this image's "
            "question and the sketch. It does not cover training the model again.",
        ),
        (
            Lens(measurement="trajectory"),
            "full index",
            "± covers the draws of the training gradients. It does not cover training "
            "the model again.",
        ),
    ],
)
def test_it_is_said_what_an_error_covers_and_what_not(lens, source, said):
    answer = replace(influence([1.0], [0.5]), lens=lens, source=source)
    assert reading.error_note(answer) == said


def test_a_method_without_errors_says_so():
    answer = replace(influence([1.0, 2.0]), lens=Lens("trak"), source="projection")
    assert reading.error_note(answer) == "TRAK gives no standard error."


def test_coverage_stands_in_a_table_by_kind_of_answer():
    told = {"coverage": 0.9, "ratio": 1.04, "count": 80}
    kinds = {"loss, sketch": {"top": told, "all": {**told, "coverage": 0.95}}}
    assert reading.coverage_table(kinds).to_dict("records") == [
        {
            "answer": "loss, sketch",
            "ten shown": 0.9,
            "all images": 0.95,
            "error of the ten, real ÷ printed": 1.04,
            "scores tried": 80,
        }
    ]


def test_similarity_is_printed_as_it_is():
    scale = reading.scale(similarity([0.914, 0.2]))
    assert (scale.number(0.914), scale.unit) == ("0.91", "")


def test_strips_hold_only_pictures_of_their_sign():
    """A row is rather short than wrong; similarity has no sign to respect."""
    more, none, less = reading.strips(influence([5.0, 1.0, 0.01, 2.0]), 3)
    assert more.positions.tolist() == [0, 3, 1]
    assert none.positions.tolist() == [2, 1, 3]
    assert less.positions.tolist() == [] and less.empty.endswith("worked against it.")
    assert [len(s.positions) for s in reading.strips(similarity([1, 0.5]), 2)] == [
        2
    ] * 3


def test_marks_count_from_the_nearer_end():
    answer = similarity([0.1, 0.9, 0.5, 0.7, 0.3, 0.4, 0.2])
    marks = reading.marks(answer, 2)
    assert (marks[101], marks[103]) == ("1", "2")
    assert (marks[100], marks[106]) == ("−1", "−2")
    assert marks[105] == "4"  # the median stands in between, with its rank


def test_ranks_of_a_tile_count_from_the_end_where_it_stands():
    """As marks do, with commas: a strip against begins with the last."""
    words = [reading.rank_words(rank, 2181, "for") for rank in (1, 1034)]
    assert words == ["1", "1,034"]
    last = [reading.rank_words(rank, 2181, "against") for rank in (2181, 2180)]
    assert last == ["−1", "−2"]


def test_strength_is_the_share_of_the_strongest_score():
    """Of an influence either sign counts; what is less alike than nothing is not."""
    assert reading.strengths(influence([4.0, -2.0, 0.0])).tolist() == [1.0, 0.5, 0.0]
    assert reading.strengths(similarity([0.8, 0.2, -0.9])).tolist() == [1, 0.25, 0]
    assert reading.strengths(influence([0.0, 0.0])).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (influence([1.0]), "Predicted change if removed · exact"),
        (replace(influence([1.0]), source="sketch"), "Predicted change if removed · s"),
        (replace(influence([1.0]), lens=Lens("trak")), "Attribution, order only · "),
        (similarity([1.0]), "Similar, not cause"),
    ],
)
def test_one_short_line_stands_above_strips(answer, line):
    """What a score is and how exact; the rest is told on demand, the value too."""
    said = reading.short_note(answer)
    assert said.startswith(line) and len(said.split()) <= 8
    whole = "compares the whole image"
    assert (whole in reading.short_note(answer, True)) == (answer.lens.method == "clip")
    behind = " ".join(how_measured(answer))
    assert METHODS[answer.lens.method].meaning in behind
    assert ("41.3 squared error now" in behind) == (answer.lens.kind != "similarity")
    assert reading.error_note(answer) in behind


def test_score_within_two_errors_is_unsure():
    answer = influence([1.0, 1.0, 1.0], [0.4, 0.6, np.nan])
    assert [reading.is_sure(answer, i) for i in range(3)] == [True, False, True]


def test_sentence_never_calls_similarity_a_change():
    """The words for influence and for similarity do not mix."""
    said = reading.sentence(influence([3.0, -1.0], [0.2, 0.2]), "“fox”")
    assert said == "“fox” helped most."
    unsure = reading.sentence(influence([3.0], [2.0]), "“fox”")
    assert unsure == "“fox” helped most, but within noise."
    alike = reading.sentence(similarity([0.9, 0.1]), "“fox”")
    assert alike == "By Small CLIP, “fox” looks most like this image."
    none = reading.sentence(influence([-3.0, -1.0]), "“fox”")
    assert none == "No single training image helped."


def test_sentence_says_which_part_was_asked_about():
    """Region, noise levels and measurement of the lens are in the words."""
    answer = influence([3.0, -1.0], [0.2, 0.2])
    lens = Lens("ekfac", "elbo", timesteps=(0, 500), region=(0, 0, 8, 8))
    said = reading.sentence(replace(answer, lens=lens), "“fox”")
    assert said == ("“fox” helped most in the region at noise levels 0 to 500 by ELBO.")


def test_attribution_is_never_called_a_change():
    """Its scores are not divided by N, and the table does not call them a change."""
    answer = replace(influence([0.5, 0.25]), lens=Lens("cosine"))
    assert reading.scale(answer).number(0.5) == "+0.500"
    assert reading.scale(answer).unit == ""
    said = reading.sentence(answer, "“fox”")
    assert said == "By Gradient cosine, “fox” helped most."
    table = reading.score_table([answer], pd.DataFrame(index=[100, 101]))
    assert list(table.columns) == ["example", "cosine_rank", "cosine_score"]


def test_score_table_keeps_lenses_of_one_method_apart():
    answer = influence([1.0, 3.0], [0.1, 0.2])
    other = replace(answer, lens=Lens("ekfac", "elbo", timesteps=(0, 9)))
    columns = reading.score_table([answer, other], pd.DataFrame(index=[100, 101]))
    assert "ekfac_rank" in columns and "ekfac_elbo_timesteps_0_9_rank" in columns


def test_shares_sum_to_one_and_ignore_negative_scores():
    groups = pd.Series(["a", "a", "b", "c"])
    frame = reading.shares(influence([3.0, -9.0, 1.0, -1.0]), groups).set_index("group")
    assert frame["share"].to_dict() == {"a": 0.75, "b": 0.25, "c": 0.0}
    assert frame["images"].to_dict() == {"a": 0.5, "b": 0.25, "c": 0.25}
    assert reading.shares(influence([-1.0, -2.0]), groups[:2]).empty


def test_small_groups_are_added_up():
    """Beyond the most, groups share one last row, and nothing of the sum is lost."""
    scores = np.arange(1.0, 13.0)
    groups = pd.Series(list("aabcdefghijk"))
    every = reading.shares(influence(scores), groups, most=99)
    few = reading.shares(influence(scores), groups, most=3)
    assert few["group"].tolist() == ["k", "j", "i", "8 others"]
    assert few["share"][:3].tolist() == every["share"][:3].tolist()
    assert few["share"].iloc[-1] == pytest.approx(every["share"][3:].sum())
    assert few["images"].sum() == pytest.approx(1)


def test_error_of_a_share_matches_simulated_scores():
    """The delta method agrees with redrawing the scores 20,000 times."""
    scores, errors = np.array([8.0, 5.0, 6.0, 3.0]), np.array([0.3, 0.4, 0.2, 0.5])
    groups = pd.Series(["a", "b", "a", "b"])
    frame = reading.shares(influence(scores, errors), groups).set_index("group")
    draws = scores + errors * GENERATOR.normal(size=(20_000, 4))
    simulated = draws[:, [0, 2]].sum(1) / draws.sum(1)
    assert frame.loc["a", "error"] == pytest.approx(simulated.std(), rel=0.05)


def test_agreement_matches_scipy_and_a_hand_count():
    first = influence(GENERATOR.normal(size=40))
    second = similarity(GENERATOR.normal(size=40))
    expected = spearmanr(first.scores, second.scores).statistic
    assert reading.rank_correlation(first, second) == pytest.approx(expected)
    assert reading.overlap(influence([3, 2, 1, 0]), influence([0, 3, 2, 1]), 2) == 1


def test_score_table_is_sorted_by_the_first_answer():
    answers = [influence([1.0, 3.0], [0.1, 0.2]), similarity([0.9, 0.1])]
    examples = pd.DataFrame({"name": ["cat", "fox"]}, index=[100, 101])
    table = reading.score_table(answers, examples)
    assert table["name"].tolist() == ["fox", "cat"]
    assert table["ekfac_change_if_removed"].tolist() == [1.5, 0.5]
    assert table["clip_rank"].tolist() == [2, 1]


@pytest.mark.parametrize("channels", [1, 3])
def test_png_keeps_every_pixel(channels):
    pixels = GENERATOR.integers(0, 256, (channels, 8, 6), dtype=np.uint8)
    shown = np.asarray(Image.open(io.BytesIO(images.png(pixels))))
    expected = pixels[0] if channels == 1 else pixels.transpose(1, 2, 0)
    assert np.array_equal(shown, expected)


def test_a_near_white_ground_is_shown_white_and_nothing_else_changes():
    """Grain of the ground goes, the drawing stays; a dark ground keeps its lights."""
    pixels = GENERATOR.integers(235, 256, (3, 16, 16)).astype(np.uint8)
    pixels[:, 4:12, 4:12] = GENERATOR.integers(0, 220, (3, 8, 8))
    cleaned = images.on_white(pixels)
    drawn = np.zeros((16, 16), bool)
    drawn[4:12, 4:12] = True
    assert (cleaned[:, ~drawn] == 255).all()
    assert (cleaned[:, drawn] == pixels[:, drawn]).all()
    dark = 255 - pixels
    assert np.array_equal(images.on_white(dark), dark)


def test_enlarged_picture_keeps_its_shape_and_large_ones_stay():
    small = images.png(np.zeros((3, 32, 64), dtype=np.uint8))
    assert Image.open(io.BytesIO(images.enlarged(small, 256))).size == (256, 128)
    assert images.enlarged(small, 64) == small


def test_enlarged_picture_looks_like_the_small_one_and_says_its_kind():
    """Made small again it differs by less than the eye sees: 45 dB."""
    waves = np.sin(np.linspace(0, 9, 3 * 64 * 64)).reshape(3, 64, 64)
    pixels = (127.5 + 127.4 * waves).astype(np.uint8)
    large = images.enlarged(images.png(pixels))
    again = Image.open(io.BytesIO(large)).resize((64, 64), Image.Resampling.BOX)
    found = np.asarray(again).transpose(2, 0, 1).astype(float)
    noise = ((found - pixels) ** 2).mean() ** 0.5
    assert 20 * np.log10(255 / noise) > 45
    kind = Image.open(io.BytesIO(large)).format.lower()
    assert images.data_uri(large).startswith(f"data:image/{kind};base64,")
    assert images.data_uri(images.png(pixels)).startswith("data:image/png;base64,")

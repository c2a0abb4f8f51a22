"""The page What if, driven as a visitor does, on a real tiny collection."""

import numpy as np
import pytest

from core import numbers
from core.evidence.changes import calibration
from core.evidence.groups import group_changes
from core.evidence.twins import twins_folder
from core.explorer import groups
from core.explorer.explorer import Lens, open_explorer
from core.explorer.mattered import where_it_mattered
from core.files import texts
from core.report.left_out import (
    against_words,
    change_words,
    mattered_words,
    measured_words,
    twins_words,
)
from pages.parts import group_picker
from tests.conftest import linked_copy
from tests.helpers.twins import write_twin
from tests.pages.test_app import (  # noqa: F401  (a fixture among them)
    address,
    app_runs_first,
    open_app,
    tied,
    wait_for_jobs,
    words,
)

PAGE = "pages/groups.py"


def shown(app) -> str:
    """Return all text on the page without the marks that escape it."""
    return words(app).replace("\\", "").replace("\u2060", "")


def open_groups(root, monkeypatch, **link):
    """Return the page, filled, as a link opens it."""
    link = {"sample": "0"} | link
    return wait_for_jobs(open_app(root, monkeypatch, PAGE, **link))


def test_printed_change_is_the_sum_over_the_group(tiny_collection, monkeypatch):
    """Number, error and place among random groups, from the scores themselves."""
    explorer = open_explorer("glyphs", tiny_collection)
    table = explorer.examples.table
    column = groups.facets(table)[0]
    group = f"value:{column}:{table[column].iloc[0]}"
    app = open_groups(tiny_collection, monkeypatch, group=group)
    assert not app.exception and not app.info
    assert address(app)["group"] == group

    query = explorer.query_from_gallery(0)
    answer = explorer.answer(query, Lens())
    members = (table[column] == table[column].iloc[0]).to_numpy()
    change = sum(answer.scores[i] for i in np.flatnonzero(members)) / len(table)
    others = groups.random_members(len(table), int(members.sum()), seed=0)
    others = groups.changes(answer.scores, others)
    uncertainty = explorer.uncertainty(query, answer)
    error = float(uncertainty.of_groups(members[None])[0])
    below = groups.share_below(change, others)
    words = change_words(
        answer,
        group_picker.display(table[column].iloc[0]),
        int(members.sum()),
        (change, error),
        below,
    )
    verdict, _, sentence = words.partition(". ")
    assert f"### {verdict}.\n{sentence}" in shown(app)
    assert against_words(below) in shown(app)
    assert f"{members.sum()} of {len(table)} images" in shown(app)
    assert "The size is not calibrated" not in shown(app)
    app.session_state["details"] = True
    assert "The size is not calibrated" in shown(wait_for_jobs(app.run()))


def test_table_holds_every_value_and_no_formula(tiny_collection, monkeypatch):
    """The bars' numbers, all of them, sorted; what a cell may hold is text."""
    app = open_groups(tiny_collection, monkeypatch)
    app.session_state["details"] = True
    app = wait_for_jobs(app.run())
    column = app.segmented_control(key="shares_choice").value
    explorer = open_explorer("glyphs", tiny_collection)
    answer = explorer.answer(explorer.query_from_gallery(0), Lens())
    table = groups.change_table(answer.scores, explorer.examples.table[column])
    assert set(table["group"]) == set(explorer.examples.table[column])
    hostile = table.assign(group='=HYPERLINK("http://evil")')
    assert "\"'=HYPERLINK" in texts.safe_csv(hostile)


def test_calibrated_change_is_shown_where_there_is_evidence(
    tested_collection, monkeypatch
):
    """The map's value at what goes beyond a random group of the size."""
    app = open_groups(tested_collection, monkeypatch, group="ids:0-9")
    app.session_state["details"] = True
    app = wait_for_jobs(app.run())
    explorer = open_explorer("glyphs", tested_collection)
    scores = explorer.answer(explorer.query_from_gallery(0), Lens()).scores
    members = (explorer.examples.table.index <= 9).astype(float)
    beyond = (members * (scores - scores.mean())).sum() / len(scores)
    found = groups.calibrated(calibration(explorer.evidence(), "ekfac", "loss"), beyond)
    scale = numbers.signed_scale(max(abs(found.low), abs(found.high)))
    assert app.metric[0].value == f"{scale.number(found.value)} {scale.unit}".strip()
    ends = f"from {scale.number(found.low)} to {scale.number(found.high)}"
    assert "beyond a random removal of the same size" in shown(app)
    assert ends in shown(app)
    told = "(in 90% of cases" if found.tested else "or more: no change as large"
    assert told in shown(app)
    assert "That was learnt where halves of the images were removed" in shown(app)


def test_a_group_that_is_gone_is_not_shown_as_chosen(tiny_collection, monkeypatch):
    """The value's box is empty, and what is chosen there is left out."""
    app = open_groups(tiny_collection, monkeypatch, group="value:subgroup:gone")
    assert "does not have" in app.info[0].value
    app.toggle(key="another_group").set_value(True).run()
    value = app.selectbox(key="group_value")
    assert value.value is None
    value.set_value(value.options[0].rpartition(" · ")[0])
    app = wait_for_jobs(app.run())
    assert not app.info and "Removed" in shown(app)


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ({"group": "ids:99999"}, "No training image is in this group yet"),
        ({"group": "ids:"}, "No training image is in this group yet"),
        ({"group": "value:subgroup:x"}, "does not have. Choose one here"),
        ({"group": "ids:0-31"}, "Every image is in this group"),
        ({"group": "magic"}, "a group 'magic'"),
        ({"group": "words:0:heart"}, "does not have"),
        ({"lenses": "clip"}, "predicts no change"),
    ],
)
def test_what_cannot_be_predicted_is_said_in_one_sentence(
    tiny_collection, monkeypatch, link, said
):
    app = open_groups(tiny_collection, monkeypatch, **link)
    assert not app.exception
    assert len(app.info) == 1 and said in app.info[0].value.replace("\\", "")


def test_unknown_numbers_are_named_and_ignored(tiny_collection, monkeypatch):
    explorer = open_explorer("glyphs", tiny_collection)
    known = int(explorer.examples.table.index[0])
    app = open_groups(tiny_collection, monkeypatch, group=f"ids:{known},99999")
    assert "99999 is not a training image of this collection" in shown(app)
    assert "1 of 32 images" in shown(app) and not app.info


def test_every_way_to_choose_writes_the_link(tiny_collection, monkeypatch):
    explorer = open_explorer("glyphs", tiny_collection)
    ids = explorer.examples.table.index
    app = open_groups(tiny_collection, monkeypatch)
    assert "group" not in address(app)
    app.toggle(key="another_group").set_value(True).run()
    value = app.selectbox(key="group_value")
    names = (option.rpartition(" · ")[0] for option in value.options)
    other = next(name for name in names if name != value.value)
    value.set_value(other).run()
    assert address(app)["group"] == f"value:subgroup:{other}"

    app.segmented_control(key="group_way").set_value("words").run()
    app.slider(key="group_count").set_value(5).run()
    app.text_input(key="group_words").set_value("a face: [x]").run()
    assert address(app)["group"] == "words:5:a face: [x]"
    app = wait_for_jobs(app)
    found = explorer.search("a face: [x]", 5)
    assert "5 of 32 images" in shown(app) and len(found) == 5

    app.segmented_control(key="group_way").set_value("ids").run()
    app.text_area(key="group_ids").set_value(f"{ids[0]}, {ids[3]}").run()
    assert "2 of 32 images" in shown(wait_for_jobs(app))
    assert address(app)["group"] == f"ids:{ids[0]}, {ids[3]}"
    # Back at the labels, what they show is what is left out.
    app.segmented_control(key="group_way").set_value("value").run()
    shown_value = tied(app.selectbox, "group_value").value
    assert address(app)["group"] == f"value:subgroup:{shown_value}"
    assert not app.exception


def test_a_collection_without_eigenvectors_has_no_errors(
    tiny_collection, tmp_path, monkeypatch
):
    """A line says so and how to get them; the change is there all the same."""
    for path in tiny_collection.iterdir():
        if path.is_file() and "eigenvectors" not in path.name:
            (tmp_path / path.name).symlink_to(path)
    app = open_groups(tmp_path, monkeypatch)
    assert not app.exception and not app.warning
    assert "Predicted" in shown(app) and "python -m" not in shown(app)
    app.session_state["details"] = True
    assert "Errors are not known here" in shown(wait_for_jobs(app.run()))


def test_group_stays_with_another_picture_and_other_pages(tiny_collection, monkeypatch):
    app = open_groups(tiny_collection, monkeypatch, group="ids:0-9")
    app.switch_page("pages/collections.py").run()
    app.switch_page(PAGE).run()
    assert address(app)["group"] == "ids:0-9"


def test_attribution_has_a_sum_but_no_change(tiny_collection, monkeypatch):
    """RelatIF's scores order groups; nothing on the page calls them a change."""
    app = open_groups(tiny_collection, monkeypatch, lenses="relatif.loss")
    assert not app.exception
    assert "together" in shown(app) and "Removing" not in shown(app)
    assert "an order only" in shown(app)


def test_a_group_of_everything_has_nothing_to_be_compared_with(
    tested_collection, monkeypatch
):
    """No change is said of it, calibrated or not."""
    app = open_groups(tested_collection, monkeypatch, group="ids:0-31")
    assert not app.exception
    assert "Predicted" not in shown(app) and "random removals of that" not in shown(app)
    assert not app.metric


def test_a_group_that_was_really_left_out_says_what_happened(
    tested_collection, monkeypatch
):
    """Measured beside predicted, and the drawings; only where it was measured."""
    explorer = open_explorer("glyphs", tested_collection)
    evidence, kind = explorer.evidence(), explorer.examples.table["subgroup"].iloc[0]
    group = f"value:subgroup:{kind}"
    app = open_groups(tested_collection, monkeypatch, group=group)
    found = group_changes(evidence, "loss").loc[(f"subgroup={kind}", 0)]
    assert "Measured: retrained without" in shown(app)
    random = found["random"] if found["controls"] else np.nan
    said = measured_words("loss", found["before"], found["change"], random)
    assert said in shown(app) and "for a random removal" in said
    assert "Predicted" in shown(app)
    assert "Measured, not predicted" in shown(app)  # beside the redrawn images
    for other in ({"sample": "5"}, {"group": "ids:1-9"}):
        link = {"group": group} | other
        app = open_groups(tested_collection, monkeypatch, **link)
        assert not app.exception and "Measured:" not in words(app)


def test_twins_draw_every_image_again_and_say_what_that_cost(
    tiny_collection, tmp_path, monkeypatch
):
    """Each model's cost, against a random removal; asked as it is, without evidence."""
    root = linked_copy(tiny_collection, tmp_path)
    explorer = open_explorer("glyphs", root)
    weights, folder = (
        explorer._collection.denoiser(),
        twins_folder(root, explorer.config),
    )
    write_twin(folder / "a.safetensors", weights, "style=noto", 0.25, change=1.05)
    write_twin(folder / "b.safetensors", weights, "style=fluent", 0.25, change=0.99)
    write_twin(folder / "c.safetensors", weights, "random", 0.25, 0, change=1.001)
    for link in ({"sample": "0"}, {"example": "3"}):
        app = wait_for_jobs(open_app(root, monkeypatch, PAGE, **link))
        query = explorer.query_from_gallery(0)
        if "example" in link:
            query = explorer.query_from_example(3)
        before = explorer.measure(query, "loss").value
        fluent, noto, chance = (
            explorer.redrawn(query, Lens(), twin).value for twin in explorer.twins
        )
        without = {"Noto": noto, "Fluent": fluent}
        said = twins_words("loss", before, without, [chance])
        assert not app.exception
        text = shown(app).replace("*", "")
        assert f"Measured, not predicted. {said}" in text, text
    app = open_groups(tiny_collection, monkeypatch)
    assert "Measured, not predicted" not in shown(app)


def test_the_question_turned_around_is_answered_for_the_gallery(
    tested_collection, monkeypatch
):
    """In how many images the group mattered; not for a lens that nothing stores."""
    explorer = open_explorer("glyphs", tested_collection)
    kind = explorer.examples.table["subgroup"].iloc[0]
    group = f"value:subgroup:{kind}"
    app = open_groups(tested_collection, monkeypatch, group=group)
    members = (explorer.examples.table["subgroup"] == kind).to_numpy()
    measured = group_changes(explorer.evidence(), "loss").loc[f"subgroup={kind}"]
    answers = explorer.gallery_answers(Lens())
    table = where_it_mattered(answers, members, 0, measured)
    whose = group_picker.display(kind)
    assert mattered_words(table, whose, "loss") in shown(app)
    app = open_groups(tested_collection, monkeypatch, group=group, lenses="ekfac.elbo")
    assert not app.exception and "mattered" not in shown(app)

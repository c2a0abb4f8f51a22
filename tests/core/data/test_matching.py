"""A name in a table means the file a person would say it means, or none."""

import posixpath
import unicodedata

from hypothesis import assume, given
from hypothesis import strategies as st

from core.data.sources.matching import FileNames, even, is_outside, training_columns

# Names with letters that have two forms, two cases, and neither.
PART = st.text("aAéÉßñ\u0301\u0130ı猫 1._-", min_size=1, max_size=6).filter(
    lambda part: part.strip(" .") == part
)
NAME = st.lists(PART, min_size=1, max_size=3).map("/".join)
FILES = st.sets(NAME, min_size=1, max_size=6)

WAYS = {
    "as it is": lambda name: name,
    "composed": lambda name: unicodedata.normalize("NFC", name),
    "apart": lambda name: unicodedata.normalize("NFD", name),
    "backslashes": lambda name: name.replace("/", "\\"),
    "from here": lambda name: f"./{name}",
    "through another folder": lambda name: f"x/../{name}",
    "twice separated": lambda name: name.replace("/", "//"),
    "blanks": lambda name: f" {name} ",
}
CASES = {"upper": str.upper, "lower": str.lower, "swapped": str.swapcase}


def folded(name: str) -> str:
    """Return what is left of a name when form, case and separators are gone.

    Written otherwise than the code that is tested: apart, not composed.
    """
    name = posixpath.normpath(name.strip().replace("\\", "/"))
    return unicodedata.normalize("NFD", unicodedata.normalize("NFC", name).casefold())


@given(FILES, st.data())
def test_a_file_is_found_by_every_way_to_write_its_name(files, data):
    """Where another file is called alike, the very name still finds its own."""
    name = data.draw(st.sampled_from(sorted(files)))
    way = data.draw(st.sampled_from(sorted(WAYS)))
    found = FileNames(files).find(WAYS[way](name))
    alike = [f for f in files if folded(f) == folded(name)]
    if way == "as it is" or alike == [name]:
        assert found == name
    else:
        assert found in (None, *alike)


@given(FILES, st.data())
def test_letter_case_is_evened_out_only_where_one_file_is_meant(files, data):
    name = data.draw(st.sampled_from(sorted(files)))
    written = CASES[data.draw(st.sampled_from(sorted(CASES)))](name)
    assume(folded(written) == folded(name))  # not so for a dotless i
    found = FileNames(files).find(written)
    alike = [f for f in files if folded(f) == folded(name)]
    if len(alike) == 1:
        assert found == name
    else:  # the one in these letters, or none
        same = [written] if written in files else []
        same = same or [f for f in alike if even(f) == even(written)]
        assert found == (same[0] if len(same) == 1 else None)


@given(FILES, st.text(max_size=12) | NAME)
def test_no_file_is_found_by_the_name_of_another(files, name):
    found = FileNames(files).find(name)
    assert found is None or folded(found) == folded(name)


@given(st.lists(PART | st.sampled_from(["..", "."]), max_size=6))
def test_paths_out_of_a_folder_are_known_by_counting(parts):
    depths = [0]
    for part in parts:
        depths.append(depths[-1] + {"..": -1, ".": 0}.get(part, 1))
    assert is_outside("/".join(parts)) == (min(depths) < 0)
    assert is_outside("\\".join(parts)) == (min(depths) < 0)
    assert is_outside("/" + "/".join(parts))


def test_the_training_images_among_columns_of_images():
    assert training_columns(["mask", "image"]) == ["image"]
    assert training_columns(["Image", "img"]) == ["Image"]
    assert training_columns(["scan", "scan_mask"]) == ["scan"]
    assert training_columns(["conditioning_image", "target"]) == ["target"]
    assert training_columns(["before", "after"]) == ["before", "after"]
    assert training_columns(["mask"]) == ["mask"]

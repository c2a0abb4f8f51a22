"""Text from anywhere is shown as text, wherever it is shown."""

import io

import pandas as pd
import pytest

from core.files.texts import file_name, for_figure, listed, one_line, safe_csv


def test_one_line_takes_orders_out_and_leaves_letters_in():
    """Line ends and turns of direction go; other scripts and joined emoji stay."""
    assert one_line("two\nlines\r\n\tthree") == "two lines three"
    assert one_line("a\u202egnp.exe") == "a\ufffdgnp.exe"
    assert one_line("a\x00b\x1b[31m") == "a\ufffdb\ufffd[31m"
    for kept in ("שלום", "مرحبا", "👩‍🚀", "猫 ünï", "<b> & **x**"):
        assert one_line(kept) == kept


def test_names_are_listed_up_to_a_few():
    assert listed(["a"]) == "'a'" and listed(["a", "b"]) == "'a' and 'b'"
    assert listed(["a", "b", "c"]) == "'a', 'b' and 'c'"
    assert listed(list("abcde")) == "'a', 'b', 'c' and 2 more"
    assert listed(["a\nb"], 1) == "'a b'" and listed([]) == ""


def test_figure_reads_no_tag_in_a_name():
    assert for_figure("<b>x</b> & &lt;") == "&lt;b&gt;x&lt;/b&gt; &amp; &amp;lt;"
    assert len(for_figure("x" * 100)) == 26
    assert for_figure("&" * 100).count("&amp;") == 25  # shortened before it is escaped


def test_csv_holds_no_formula_and_numbers_stay_numbers():
    cells = [
        "=1+1",
        "+cmd",
        "-2",
        "@x",
        "-1.5e3",
        "plain",
        "\t=x",
        " =x",
        "＝1",
        "a\nb",
    ]
    table = pd.DataFrame({"group": cells, "change": -1.5, "=head": 0})
    read = pd.read_csv(io.StringIO(safe_csv(table)), dtype={"group": str})
    assert read["group"].tolist() == [
        *("'=1+1", "'+cmd", "-2", "'@x", "-1.5e3", "plain"),
        *("'\t=x", "' =x", "'＝1", "a\nb"),
    ]
    assert list(read.columns) == ["group", "change", "'=head"]
    assert read["change"].tolist() == table["change"].tolist()


def test_csv_keeps_the_digits_it_is_asked_for():
    table = pd.DataFrame({"score": [1 / 3], "name": ["a"]})
    assert safe_csv(table, "%.9g") == "score,name\n0.333333333,a\n"
    assert float(safe_csv(table).split("\n")[1].split(",")[0]) == 1 / 3


@pytest.mark.parametrize("name", ["../../etc/passwd", "a\u202eb", "x" * 500, "CON: <"])
def test_file_names_are_short_and_plain(name):
    made = file_name("afterimage", name, ending="html")
    assert made.startswith("afterimage-") and made.endswith(".html")
    assert len(made) <= 85 and set(made) <= set(
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-."
    )
    assert made.count(".") == 1

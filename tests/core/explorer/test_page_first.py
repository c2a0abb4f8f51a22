"""The thread that loads the model waits for pages; nobody waits for ever."""

import importlib
import sys
import threading
import time

import pytest

from core.answers import Cancelled
from core.explorer import page_first

SOURCE = "import time\nAT = time.monotonic()\n"


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module that notes when it is imported."""
    (tmp_path / "loaded_late.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(page_first, "HEAVY", {"loaded_late"})
    yield "loaded_late"
    sys.modules.pop("loaded_late", None)


def imported(name: str, stands_back: bool) -> threading.Thread:
    def work():
        if stands_back:
            with page_first.standing_back():
                importlib.import_module(name)
        else:
            importlib.import_module(name)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_an_import_that_stands_back_waits_for_every_page(module):
    with page_first.page_drawn():
        with page_first.page_drawn():
            thread = imported(module, stands_back=True)
            time.sleep(0.1)
        time.sleep(0.1)
        assert module not in sys.modules
        end = time.monotonic()
    thread.join(10)
    assert sys.modules[module].AT >= end


def test_other_threads_import_at_once(module):
    with page_first.page_drawn():
        imported(module, stands_back=False).join(10)
        assert module in sys.modules


def test_a_page_that_never_ends_holds_nobody_up_for_ever(module, monkeypatch):
    monkeypatch.setattr(page_first, "MOST", 0.2)
    with page_first.page_drawn():
        start = time.monotonic()
        imported(module, stands_back=True).join(10)
        assert sys.modules[module].AT - start >= 0.2


def test_rest_begins_anew_with_every_page():
    with page_first.page_drawn():
        pass
    took = []
    resting = threading.Thread(
        target=lambda: took.append(page_first.wait_for_rest(0.5, 10))
    )
    resting.start()
    time.sleep(0.3)
    with page_first.page_drawn():
        pass
    end = time.monotonic()
    resting.join(10)
    assert time.monotonic() - end >= 0.5 and took[0] >= 0.8


def test_rest_is_waited_for_no_longer_than_asked():
    with page_first.page_drawn():
        assert 0.1 <= page_first.wait_for_rest(60, 0.1) < 10


def test_a_page_that_fails_is_over(module):
    with pytest.raises(ZeroDivisionError), page_first.page_drawn():
        raise ZeroDivisionError
    imported(module, stands_back=True).join(10)
    assert module in sys.modules


def test_what_pages_import_too_is_never_held_back(module, monkeypatch):
    """Or a page would wait for the thread that waits for it."""
    monkeypatch.setattr(page_first, "HEAVY", set())
    with page_first.page_drawn():
        imported(module, stands_back=True).join(1)
        assert module in sys.modules


def test_within_what_pages_import_nothing_is_held_back(module, tmp_path):
    (tmp_path / "library.py").write_text(f"import {module}\n")
    with page_first.page_drawn():
        imported("library", stands_back=True).join(5)
        assert sys.modules.pop("library", None)


def test_a_page_imports_while_another_thread_stands_back(module, tmp_path):
    """Python looks for a module under a lock that every import takes."""
    (tmp_path / "of_the_page.py").write_text(SOURCE)
    with page_first.page_drawn():
        thread = imported(module, stands_back=True)
        time.sleep(0.1)
        imported("of_the_page", stands_back=False).join(5)
        assert sys.modules.pop("of_the_page", None)
        assert module not in sys.modules
    page_first.page_shown()
    thread.join(10)
    assert module in sys.modules


def test_who_stands_back_goes_on_once_a_browser_shows_the_page(monkeypatch):
    monkeypatch.setattr(page_first, "SETTLE", 60.0)
    with page_first.page_drawn():
        page_first.page_shown()  # of the page before
    assert 0.1 <= page_first.wait_for_rest(page_first.SETTLE, 0.1) < 10
    page_first.page_shown()
    assert page_first.wait_for_rest(page_first.SETTLE, 60) < 10


def test_a_question_of_who_went_on_stops_after_the_page():
    def gone(*_):
        raise Cancelled

    with page_first.page_drawn():
        pass
    page_first.page_shown()
    with pytest.raises(Cancelled):
        page_first.let_pages_go_first(gone, "Loading")

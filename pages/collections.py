"""Collections: what is loaded, how it was made, what it cost, whose art it holds."""

import pandas as pd
import streamlit as st

from core.config import DATA_DIR
from core.explorer import Explorer
from pages import shared
from pages.shared import text


def duration(seconds: float) -> str:
    """Return a number of seconds in words that suit its size."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def is_nested(value: object) -> bool:
    """Return whether a value holds other values."""
    return isinstance(value, (list, dict))


def flattened(values: dict, prefix: str = "") -> list[tuple[str, str]]:
    """Return nested values as (dotted name, text), in their order."""
    rows = []
    for name, value in values.items():
        if isinstance(value, dict):
            rows += flattened(value, f"{prefix}{name}.")
        else:
            flat = isinstance(value, list) and not any(map(is_nested, value))
            said = ", ".join(map(str, value)) if flat else str(value)
            rows.append((prefix + name, said))
    return rows


def value_table(values: dict, name: str) -> None:
    """Show nested values as a table of two columns."""
    frame = pd.DataFrame(flattened(values), columns=[name, "value"])
    height = 420 if len(frame) > 10 else "content"
    st.dataframe(frame, hide_index=True, width="stretch", height=height)


def show_contents(explorer: Explorer) -> None:
    """Show what the collection holds, in numbers."""
    numbers = {
        "Training pictures": f"{explorer.num_examples:,}",
        **{
            f"{shared.column_name(column)}s": explorer.classes[column].nunique()
            for column in explorer.classes.columns
        },
        "Gallery samples": len(explorer.gallery),
        "Computing on": explorer.device_name,
    }
    with st.container(horizontal=True, gap="large"):
        for name, value in numbers.items():
            st.metric(name, str(value), width="content")


def show_cost(costs: dict[str, float]) -> None:
    """Show how long each stage of the making took."""
    st.subheader("What it cost", anchor=False)
    if not costs:
        st.caption("This collection does not record how long its stages took.")
        return
    total = sum(costs.values())
    st.caption(f"{duration(total)} in all, once; asking needs none of it again.")
    frame = pd.DataFrame({
        "stage": list(costs),
        "time": [duration(seconds) for seconds in costs.values()],
        "share": [seconds / total if total else 0.0 for seconds in costs.values()],
    })
    share = st.column_config.ProgressColumn(
        "share of the time", format="percent", min_value=0, max_value=1
    )
    st.dataframe(
        frame, hide_index=True, width="stretch", column_config={"share": share}
    )


QUALITIES = {
    "split_reliability": "order from one half of the draws against the other's",
    "reliability": "the same, expected of all draws",
    "sketch_agreement": "order by the sketch against the exact one",
    "index_agreement": "order by the full index against the exact one",
    "error_agreement": "predicted against observed standard errors",
}


def show_quality(explorer: Explorer) -> None:
    """Show how reliable the rankings were when tested, and what compression loses."""
    st.subheader("How far to trust it", anchor=False)
    quality = explorer.provenance.get("quality") or {}
    if not quality:
        st.caption("This collection does not record how reliable its rankings are.")
        return
    st.caption(
        "Rank correlations (Spearman) over the gallery's samples: 1 is the same order, "
        "0 is chance."
    )
    rows = [
        (words, quality[name])
        for name, words in QUALITIES.items()
        if quality.get(name) is not None
    ]
    agreement = st.column_config.ProgressColumn(
        "agreement", format="%.3f", min_value=0, max_value=1
    )
    st.dataframe(
        pd.DataFrame(rows, columns=["what", "agreement"]),
        hide_index=True,
        width="stretch",
        column_config={"agreement": agreement},
    )
    draws = explorer.provenance["settings"]["gradients"]["num_draws"]
    if quality.get("draws_for_90") is not None:
        st.caption(
            f"Each training picture was measured with {draws} draws; "
            f"{quality['draws_for_90']:.0f} would make the order agree to 0.90."
        )


def show_art(explorer: Explorer) -> None:
    """Show whose art the collection holds, and under which licences."""
    st.subheader("Whose art", anchor=False)
    st.markdown("\n".join(f"- {text(line)}" for line in explorer.credits))
    table = explorer.examples.table
    if "license" in table.columns:
        counts = table["license"].value_counts()
        said = (f"{text(name)}: {count:,} pictures" for name, count in counts.items())
        st.caption(" · ".join(said))
    notice = DATA_DIR / "NOTICE.md"
    if notice.exists():
        with st.expander("Notices and licences in full"):
            st.markdown(notice.read_text())


def show_making(explorer: Explorer) -> None:
    """Show the settings, versions and hashes that the collection records."""
    st.subheader("How it was made", anchor=False)
    st.caption(f"Fingerprint {text(explorer.fingerprint[:12])}")
    sections = [
        name
        for name, values in explorer.provenance.items()
        if isinstance(values, dict) and values and name not in ("costs", "quality")
    ]
    if not sections:
        st.caption("This collection does not record its settings.")
        return
    section = st.segmented_control(
        "Show",
        sections,
        default=sections[0],
        required=True,
        format_func=shared.column_name,
        label_visibility="collapsed",
    )
    value_table(explorer.provenance[section], section)


def show_adding(explorer: Explorer) -> None:
    """Say how to make this collection again."""
    st.subheader("Make it yourself", anchor=False)
    st.markdown(
        "One command trains, measures and publishes this collection; interrupted, it "
        "goes on where it stopped:"
    )
    st.code(f"python -m precompute build --collection {explorer.name}", language="bash")
    st.caption("What is published appears in the picker of the sidebar.")


explorer = shared.chosen_explorer()
st.title(text(explorer.title), anchor=False)
show_contents(explorer)
left, right = st.columns(2, gap="large")
with left:
    show_making(explorer)
with right:
    show_quality(explorer)
    show_cost(explorer.provenance.get("costs", {}))
    show_art(explorer)
    show_adding(explorer)

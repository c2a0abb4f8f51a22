"""Collections: what is loaded, how it was made, what it cost, whose art it holds."""

import pandas as pd
import streamlit as st

from core.config import DATA_DIR
from core.explorer.explorer import Explorer
from core.files.running import running
from core.numbers import duration
from core.report import reading
from pages.parts import link, shared
from pages.parts.words import several_of, text

COUNTS = "<style>.st-key-counts strong { font-size: 1.7rem; }</style>"
LOOK_EVERY = 3.0  # seconds between two looks at what is being made


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
            words = ", ".join(map(str, value)) if flat else str(value)
            rows.append((prefix + name, words))
    return rows


def value_table(values: dict, name: str) -> None:
    """Show nested values as a table of two columns."""
    frame = pd.DataFrame(flattened(values), columns=[name, "value"])
    height = 420 if len(frame) > 10 else "content"
    st.dataframe(
        frame,
        hide_index=True,
        width="stretch",
        height=height,
        alt=f"Each {name} and its value",
    )


def show_contents(explorer: Explorer) -> None:
    """Show what the collection holds, in numbers."""
    numbers = [
        ("Training images", f"{explorer.num_examples:,}"),
        *(
            (
                text(several_of(explorer.name, column)),
                explorer.classes[column].nunique(),
            )
            for column in explorer.classes.columns
        ),
        ("Gallery samples", len(explorer.gallery)),
        ("Computing on", explorer.device_name),
    ]
    # Not `st.metric`: the browser fetches that when it first meets one, and what is
    # below then moves down.
    st.html(COUNTS)
    with st.container(horizontal=True, gap="large", key="counts"):
        for name, value in numbers:
            with st.container(gap=None, width="content"):
                st.caption(name)
                st.markdown(f"**{text(value)}**")


def show_cost(costs: dict[str, float]) -> None:
    """Show how long each stage of the making took."""
    st.header("What it cost", anchor=False)
    if not costs:
        st.caption("This collection does not record how long its stages took.")
        return
    costs = {stage: seconds for stage, seconds in costs.items() if seconds > 0}
    total = sum(costs.values())
    words = f"{duration(total)} in all, once; asking needs none of it again."
    if "train" not in costs:
        words += " The model came trained."
    st.caption(words)
    frame = pd.DataFrame({
        "stage": list(costs),
        "time": [duration(seconds) for seconds in costs.values()],
        "share": [seconds / total if total else 0.0 for seconds in costs.values()],
    })
    share = st.column_config.ProgressColumn(
        "share of the time", format="percent", min_value=0, max_value=1
    )
    st.dataframe(
        frame,
        hide_index=True,
        width="stretch",
        column_config={"share": share},
        alt="Time that each stage of the making took",
    )


QUALITIES = {
    "split_reliability": "order from one half of the draws against the other's",
    "reliability": "the same, expected of all draws",
    "sketch_agreement": "order by the sketch against the exact one",
    "index_agreement": "order by the full index against the exact one",
    "exact_again": "stored answers, asked again with all noise new",
    "sketch_again": "answers by the sketch, asked again with all noise new",
    "error_agreement": "predicted against observed standard errors",
}


def show_quality(explorer: Explorer) -> None:
    """Show how reliable the rankings were when tested, and what compression loses."""
    st.header("How far to trust it", anchor=False)
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
        alt="How far rankings agree when they are asked again or stored shorter",
    )
    draws = explorer.provenance["settings"]["gradients"]["num_draws"]
    if quality.get("draws_for_90") is not None:
        st.caption(
            f"Each training image was measured with {draws} draws; "
            f"{quality['draws_for_90']:.0f} would make the order agree to 0.90."
        )


def show_coverage(explorer: Explorer) -> None:
    """Show how standard errors stood a test by other draws."""
    st.header("Does ± hold?", anchor=False)
    if not explorer.coverage:
        st.caption(
            "Nobody has tested the standard errors of this collection. "
            f"`python -m precompute errors --collection {text(explorer.name)}` does."
        )
        return
    st.caption(
        "Answers were computed again with fresh noise. Of intervals that should hold "
        "the true score in 90%, so many did."
    )
    st.dataframe(
        reading.coverage_table(explorer.coverage),
        hide_index=True,
        width="stretch",
        column_config={
            name: st.column_config.NumberColumn(format="percent")
            for name in ("ten shown", "all images")
        },
        alt="How often intervals held, for the ten images shown and for all",
    )


def show_fidelity(explorer: Explorer) -> None:
    """Show what each way to store a training gradient keeps of the scores."""
    fidelity = explorer.evaluations.get("fidelity")
    if fidelity is None:
        return
    st.header("What storing keeps", anchor=False)
    facts = fidelity["facts"]
    at = f"{facts['stored_at_relative_damping']:g}"
    st.caption(
        f"Ways to store a training gradient, measured on {facts['examples']} images "
        f"and {facts['queries']} samples: agreement (Spearman) with scores that were "
        "not compressed, and how many of the first ten stay."
    )
    shown = [row for row in fidelity["rows"] if row["bytes_per_query"] is None]
    frame = pd.DataFrame({
        "format": [format_words(row) for row in shown],
        "kB an image": [row["bytes_per_example"] / 1000 for row in shown],
        "agreement": [row["spearman"][at] for row in shown],
        "first ten": [10 * row["top_ten"][at] for row in shown],
        "ms to ask": [1000 * row["seconds_per_query"] for row in shown],
    })
    st.dataframe(
        frame.sort_values("kB an image", ascending=False),
        hide_index=True,
        width="stretch",
        height=420,
        column_config={
            "kB an image": st.column_config.NumberColumn(format="%.1f"),
            "agreement": st.column_config.ProgressColumn(
                "agreement", format="%.3f", min_value=0, max_value=1
            ),
            "first ten": st.column_config.NumberColumn(format="%.1f"),
            "ms to ask": st.column_config.NumberColumn(format="%.1f"),
        },
    )
    st.caption(text(fidelity["paper"]["outcome"]))


def format_words(row: dict) -> str:
    """Return the name of a way to store gradients, with its size."""
    bits = "1 bit" if row["bits"] == 1 else f"{row['bits']} bits"
    numbers = "" if row["dim"] is None else f"{row['dim']:,} numbers, "
    return f"{row['format']}, {numbers}{bits}"


def show_art(explorer: Explorer) -> None:
    """Show whose art the collection holds, and under which licences."""
    st.header("Whose art", anchor=False)
    st.markdown("\n".join(f"- {text(line)}" for line in explorer.credits))
    table = explorer.examples.table
    if "license" in table.columns:
        counts = table["license"].value_counts()
        words = (f"{text(name)}: {count:,} images" for name, count in counts.items())
        st.caption(" · ".join(words))
    notice = DATA_DIR / "NOTICE.md"
    if notice.exists():
        with st.expander("Notices and licences in full"):
            st.markdown(notice.read_text())


def show_making(explorer: Explorer) -> None:
    """Show the settings, versions and hashes that the collection records."""
    st.header("How it was made", anchor=False)
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
        required=True,
        format_func=lambda name: text(name.replace("_", " ").capitalize()),
        label_visibility="collapsed",
        **link.bind("section", sections, sections[0]),
    )
    value_table(explorer.provenance[section], section)


# What to type, by what somebody has.
WAYS = {
    "images": (
        "Says what lies at a path, then trains a model on it and makes a collection. A "
        "folder of images, CIFAR, ArtBench, MNIST, Hugging Face or parquet.",
        "python -m precompute inspect-data PATH\n"
        "python -m precompute build --collection my-drawings --data PATH",
    ),
    "images and a model": (
        "For a model that diffusers saved, and the images it was trained on. Nothing "
        "is trained.",
        "python -m precompute import-model MODEL_FOLDER --collection mine --data PATH\n"
        "python -m precompute build --collection mine",
    ),
    "drawings and a LoRA": (
        "For a Stable Diffusion that was tuned on drawings with captions. Only the "
        "LoRA is attributed. It takes hours on a GPU.",
        "python -m precompute import-model SD_FOLDER --collection my-art --data PATH "
        "--lora LORA\n"
        "python -m precompute build --collection my-art",
    ),
}


def show_adding(explorer: Explorer) -> None:
    """Say how to make this collection again, and one of one's own."""
    st.header("Add a collection", anchor=False)
    ways = {
        **WAYS,
        "this one again": (
            "Trains, measures and publishes this exact collection.",
            f"python -m precompute build --collection {explorer.name}",
        ),
    }
    way = st.segmented_control(
        "I have",
        list(ways),
        default=next(iter(ways)),
        required=True,
        wrap=True,
        help="What the commands below start from",
    )
    meaning, commands = ways[way]
    st.caption(text(meaning))
    st.code(commands, language="bash", wrap_lines=True)
    st.caption(
        "While it runs, this page shows how far it is. Interrupted, the same command "
        "goes on where it stopped. What is published appears in the sidebar’s picker."
    )


@st.fragment(run_every=LOOK_EVERY)
def show_running() -> None:
    """Show how far the commands are that make collections here, if there are any."""
    for one in running(shared.root()):
        words = f"**{text(one.collection)}** · {text(one.stage or one.verb)}"
        if one.total:
            words += f" · {one.done:,} of {one.total:,}"
        if one.seconds_left is not None:
            words += f" · about {duration(max(one.seconds_left, 1))} left of this step"
        st.progress(one.fraction, f"Being made: {words}")


show_running()
explorer = shared.chosen_explorer()
st.title(text(explorer.title), anchor=False)
show_contents(explorer)
left, right = st.columns(2, gap="large")
with left:
    show_making(explorer)
    show_cost(explorer.provenance.get("costs", {}))
    show_adding(explorer)
with right:
    show_quality(explorer)
    show_coverage(explorer)
    show_fidelity(explorer)
    show_art(explorer)

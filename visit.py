"""Afterimage, as every visit runs it; `app.py` serves this file and needs it."""

import streamlit as st

from pages.parts import link, shared, waiting

st.set_page_config(
    page_title="Afterimage",
    page_icon=str(shared.HERE / "icon.svg"),
    layout="wide",
    initial_sidebar_state="collapsed",
)
st.logo(shared.HERE / "logo.svg", icon_image=shared.HERE / "logo.svg")
link.take_address()
page = shared.navigate()
st.session_state.page = page.url_path or "explore"
shared.choose_collection()
with waiting.leaving_the_rest():
    page.run()

"""Afterimage: which training pictures is a diffusion model's picture made of?"""

import streamlit as st

from pages import shared

st.set_page_config(
    page_title="Afterimage",
    page_icon=":material/blur_on:",
    layout="wide",
    initial_sidebar_state="collapsed",
)
page = st.navigation(
    [
        st.Page("pages/explore.py", title="Explore", default=True),
        st.Page("pages/collections.py", title="Collections"),
    ],
    position="top",
)
shared.choose_collection()
page.run()

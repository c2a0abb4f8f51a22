"""Collections: what is loaded, how it was made, what it cost, whose art it holds."""

import streamlit as st

from pages import shared

explorer = shared.chosen_explorer()
st.caption(explorer.title)

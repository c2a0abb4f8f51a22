"""Afterimage as a server: `streamlit run app.py`; every visit runs `visit.py`."""

import streamlit as st
from starlette.middleware import Middleware

from pages.parts import served

app = st.App(
    "visit.py",
    middleware=[Middleware(served.Guard)],
    lifespan=served.lifespan,
    on_script_error=served.apologise,
)

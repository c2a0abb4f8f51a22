"""Attribution of diffusion models: everything Afterimage computes.

This package knows neither Streamlit nor the pages. Equation numbers refer to "Influence
Functions for Scalable Data Attribution in Diffusion Models" (ICLR 2025). README.md here
says which code holds which equation, and how four traps in its notation are read.
"""

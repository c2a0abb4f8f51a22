"""Everything a page may ask of a collection; knows no torch until a model is needed."""

"""The stages that make a collection, from training to publishing."""

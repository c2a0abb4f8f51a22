"""What a collection will cost, from trials of its stages."""

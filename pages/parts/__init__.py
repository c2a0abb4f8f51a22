"""What several pages show; each file is one part of a page."""

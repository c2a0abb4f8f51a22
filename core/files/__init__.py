"""Bytes in and out: whole files, images, text for people, notices of running work."""

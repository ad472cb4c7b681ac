"""Checkpoints: loading them, uploading them; and the checkpoint that ships."""

"""Checkpoints: loading them, fingerprints of them, uploading them; and the checkpoint that ships."""

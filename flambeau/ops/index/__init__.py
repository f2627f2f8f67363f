"""Elements found or placed by index, mask or order."""

"""The parts of `photo_features.py`: pure functions first, then what talks to people."""

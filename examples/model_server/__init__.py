"""The parts of `model_server_batch.py`."""

"""Recorded cases of many engines' schedulers, one module an engine; what a module holds is stated in `base.py`."""

"""Calibration: step times fitted to what a log saw, judged on the part of the log that was not fitted."""

"""Files of recorded episodes, read with NumPy alone."""

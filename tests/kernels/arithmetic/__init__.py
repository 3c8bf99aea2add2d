"""What every arithmetic instruction computes, bit for bit, against references in Python and NumPy."""

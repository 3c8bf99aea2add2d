"""Many copies as one operation: `copy_batch`."""

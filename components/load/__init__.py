"""Datasets for any training loop: random access and shuffled batches for NumPy, JAX, PyTorch and tf.data."""

"""The stages of an input pipeline: each says what it does and why there, and applies itself to a tf.data.Dataset."""

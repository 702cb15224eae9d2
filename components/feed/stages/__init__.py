"""Stages of an input pipeline. Each describes its work and its reason, and applies itself to a tf.data.Dataset."""

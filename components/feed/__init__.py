"""The engine that feeds training: plan, build, augment, meter. TensorFlow, no TFX."""

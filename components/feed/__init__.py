"""Input pipeline of training: plan, build, augment, meter. Imports TensorFlow, not TFX."""

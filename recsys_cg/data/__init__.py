"""Pure functions over Arrow blocks: no Beam, no TensorFlow."""

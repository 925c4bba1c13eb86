"""Real data sets and the models that are trained on them."""

"""AdaGrad: the steps of `sgd` by default, of one model, and of several strengths in one kernel."""

"""The losses that methods train with where none is given."""

OF_CLASSES = "softmax"  # also the link of `gls`
OF_NUMBERS = "squared"
OF_LABELS = "ovr_log"  # sets of labels by stochastic gradients, which find their probabilities
# of more features than rows: its error is the lowest there (docs/decisions/0018)
OF_WIDE_CLASSES = "crammer_singer"
OF_SPARSE_MODELS = "multiclass_squared_hinge"  # that of the paper of block coordinate descent
# of one-versus-rest support vector machines: smooth, and of LIBLINEAR
OF_SUPPORT_VECTORS = "ovr_squared_hinge"
OF_PEGASOS = "ovr_hinge"

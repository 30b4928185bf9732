// An EAGLE-3 layer's start from the target's last layer (drafter.layer: target).
//
// The drafter's layer reads (normed embedding of token t+1, normed hidden_t), the target's last one its residual stream
// alone. So matrices behind hidden_t (the second half of q's, k's and v's columns), attention's output, the MLP and the
// norms of both sublayers are the target's; the half behind the embedding is drawn. fc passes the last tap on, at unit
// variance, and adds the other taps with a tenth of the weight that drawn ones have: the layer reads what the target's
// does, from three layers earlier.
#ifndef PL_TRAIN_START_LAYER_H
#define PL_TRAIN_START_LAYER_H

#include "train/start/start.h"

// rms: of the last tap. PL_E_UNSUPPORTED, with one line, where the target's layer has other weights than the drafter's
// (a mixture of experts, norms of outputs, other head sizes).
pl_status pl_start_layer(pl_start *s, double rms, pl_err *err);

#endif

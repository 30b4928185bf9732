// A second opinion on the drafter's training: forward and backward of EAGLE-3's training-time test written out by hand
// in double, one loop nest per formula. It shares no code with the ops, the tape or the modules; only weights and rows.
#ifndef PL_TEST_BY_HAND_H
#define PL_TEST_BY_HAND_H

#include "infer/drafter/eagle3.h"
#include "train/loop/block.h"
#include "train/task/unroll.h"

// Everything in double (a ref64 block). grad: as long as the block's and laid out like it, zeroed; gets the gradient of
// the weighted sum of losses. loss [K * rows]. Heads full and lowrank, no d2t.
double by_hand_drafter(const pl_unroll *u, const pl_param_block *b, double *grad, double *loss);

#endif

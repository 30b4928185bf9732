#include "infer/verify.h"

// Every node is matched: the walk draws from the target's law and looks the token up.
const pl_verifier pl_verify_match = {.name = "match",
                                     .help = "draw the target's token, follow it where it was drafted: the tokens are "
                                             "those of plain sampling",
                                     .proposal = PL_PROPOSE_TOP,
                                     .lossless = true};

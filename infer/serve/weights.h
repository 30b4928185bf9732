// GET and POST /v1/drafter: the weights that a server drafts with, which can be replaced while it serves.
//
//   GET   {"drafter":"NAME","drafters":["NAME",...],"swaps":N}
//   POST  {"drafter":"NAME"}: reads the checkpoint of that name again and drafts with it from the next step on; no
//         request is dropped, no text changes. Names are the server's, never paths, and a key is needed always
#ifndef PL_SERVE_WEIGHTS_H
#define PL_SERVE_WEIGHTS_H

#include "infer/serve/routes.h"

void pl_weights_show(void *server, pl_exchange *x);
void pl_weights_replace(void *server, pl_exchange *x);

// Reads n options "NAME=DIR" into list [n], which borrows the folders. PL_E_USAGE for another form, or a name given
// twice.
pl_status pl_weights_read(pl_serve_weights *list, int n, const char *const *option, pl_err *err);

#endif

// `paceline serve`: a target behind OpenAI's API.
//
// One thread does all: it reads and writes connections (infer/serve/http.h), gives free slots of the engine to requests
// in the order of their arrival, takes one step for all sessions, and sends what they emitted. A session's tokens do
// not depend on the others (infer/decode/decode.h), so an answer has the bits that `paceline decode` gives it.
#ifndef PL_SERVE_H
#define PL_SERVE_H

#include "data/chat/template.h"
#include "infer/decode/runner.h"
#include "infer/serve/access.h"
#include "infer/serve/metrics.h"
#include "infer/serve/record.h"

// A checkpoint whose weights may replace the drafter's (infer/serve/weights.h).
typedef struct pl_serve_weights {
    char        name[64];
    const char *dir;
} pl_serve_weights;

typedef struct pl_serve_options {
    pl_runner              *runner;           // with `sessions` slots; its target has a tokenizer
    const char             *drafter, *verify; // as they were chosen at the start; drafter NULL: none
    int                     sessions, queue;  // queue: choices that wait for a slot, at most
    const pl_chat_template *chat;             // NULL: chat is refused with the line no_chat
    const char             *no_chat;
    pl_chat_options         chat_options;
    bool                    dated;    // chat_options has a date; else each request takes the time of its arrival
    bool                    logprobs; // the engine's logits are on the host (pl_engine_options.see_logits)
    const char             *model;    // name that clients use
    uint64_t                seed;     // of requests that bring none
    bool                    has_seed; // else one is drawn for each
    const char             *host;
    int                     port; // 0: any
    const pl_access        *access;
    pl_record              *record; // answers are written to it; NULL: none
    const pl_serve_weights *weights;
    int                     n_weights;
    const char             *origin;     // see pl_http_options
    void (*ready)(void *arg, int port); // called when clients can connect
    void *arg;
} pl_serve_options;

// Serves until SIGINT or SIGTERM: requests that are being answered end, new ones get 503. PL_E_IO: cannot listen. A
// failure of the engine ends all with its line.
// *done: what was served.
pl_status pl_serve(const pl_serve_options *o, pl_metrics *done, pl_err *err);

#endif

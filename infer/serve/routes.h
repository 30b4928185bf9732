// The endpoints of a server and its state. Private to infer/serve.
#ifndef PL_ROUTES_H
#define PL_ROUTES_H

#include "infer/serve/http.h"
#include "infer/serve/job.h"
#include "infer/serve/metrics.h"
#include "infer/serve/serve.h"

typedef struct pl_server {
    const pl_serve_options *o;
    pl_job_server           job;
    pl_http                *http;
    pl_choice             **running;     // [sessions]; metrics.running of them
    pl_job                 *jobs, *last; // in the order of arrival
    pl_metrics              metrics;
    int64_t                 begun;    // seconds since 1970
    const pl_serve_weights *weights;  // in use; NULL: those of the start
    double                  busy;     // when there was a job (pl_now)
    bool                    stopping; // a stop was requested
} pl_server;

extern const pl_route pl_routes[]; // their argument is a pl_server

// Appends a job to those that wait (infer/serve/serve.c).
void pl_server_add(pl_server *s, pl_job *j);

#endif

#include "infer/serve/weights.h"

#include "kernels/base/json.h"
#include "kernels/base/log.h"

#include <stdio.h>
#include <string.h>

pl_status pl_weights_read(pl_serve_weights *list, int n, const char *const *option, pl_err *err) {
    for (int i = 0; i < n; i++) {
        const char *equal = strchr(option[i], '=');
        size_t      bytes = equal ? (size_t)(equal - option[i]) : 0;
        if (bytes == 0 || bytes >= sizeof list[i].name || !equal[1])
            return pl_fail(err, PL_E_USAGE, "--swap %s: expected NAME=DIR, a name of at most %d bytes", option[i],
                           (int)sizeof list[i].name - 1);
        snprintf(list[i].name, sizeof list[i].name, "%.*s", (int)bytes, option[i]);
        list[i].dir = equal + 1;
        for (int k = 0; k < i; k++)
            if (strcmp(list[k].name, list[i].name) == 0)
                return pl_fail(err, PL_E_USAGE, "--swap: the name \"%s\" is given twice", list[i].name);
    }
    return PL_OK;
}

static void answer(const pl_server *s, pl_exchange *x) {
    pl_json_out o;
    pl_json_out_begin(&o, 0);
    pl_json_out_object(&o);
    pl_put_str(&o, "drafter", s->weights ? s->weights->name : s->o->drafter);
    pl_put_array(&o, "drafters");
    for (int i = 0; i < s->o->n_weights; i++)
        pl_json_out_str(&o, s->o->weights[i].name);
    pl_json_out_close(&o, ']');
    pl_put_int(&o, "swaps", s->metrics.swaps);
    pl_json_out_close(&o, '}');
    bool made = pl_json_out_end(&o, NULL) == PL_OK;
    pl_exchange_answer(x, 200, "application/json", made ? o.text : NULL, made ? o.len : 0);
}

void pl_weights_show(void *server, pl_exchange *x) {
    answer(server, x);
}

// Reads the name; NULL: the request has been answered with what is wrong.
static const pl_serve_weights *read_name(const pl_server *s, pl_exchange *x) {
    pl_json     j;
    pl_err      err = {0};
    const char *name;
    char        why[256];
    if (pl_json_parse(&j, "body", 0, x->body.s ? x->body.s : "", x->body.n, PL_JSON_UNIQUE, &err) != PL_OK) {
        pl_exchange_fail(x, 400, err.msg, NULL, NULL);
        return NULL;
    }
    const pl_serve_weights *found = NULL;
    if (pl_json_get_str(&j, NULL, "drafter", &name, &err) != PL_OK) {
        pl_exchange_fail(x, 400, err.msg, "drafter", NULL);
    } else {
        for (int i = 0; i < s->o->n_weights && !found; i++)
            if (strcmp(s->o->weights[i].name, name) == 0) found = &s->o->weights[i];
        snprintf(why, sizeof why, "drafter: \"%.100s\" is no name that the server was started with (--swap NAME=DIR)",
                 name);
        if (!found) pl_exchange_fail(x, 404, why, "drafter", NULL);
    }
    pl_json_close(&j);
    return found;
}

void pl_weights_replace(void *server, pl_exchange *x) {
    pl_server *s = server;
    pl_err     err = {0};
    if (s->o->access->n_keys == 0) {
        pl_exchange_fail(x, 403,
                         "drafters are replaced by clients with a key alone: start the server with "
                         "--api-key-file",
                         NULL, NULL);
        return;
    }
    const pl_serve_weights *w = read_name(s, x);
    if (!w) return;
    pl_status st = pl_runner_retake(s->o->runner, w->dir, &err);
    if (st != PL_OK) {
        pl_log_warn("drafter \"%s\": %s", w->name, err.msg);
        // The line names a path of the server, which is not the client's to see.
        pl_exchange_fail(x, st == PL_E_MEMORY ? 503 : 409,
                         "the checkpoint of this name cannot be used; the server's log says why", "drafter", NULL);
        return;
    }
    s->weights = w;
    s->metrics.swaps++;
    pl_log("drafter: %s", w->name);
    answer(s, x);
}

#include "infer/command/chat.h"
#include <string.h>
#include <time.h>

pl_status pl_chat_cli_check(const pl_cli_args *a, bool chat, pl_err *err) {
    static const pl_key own[] = {PL_CHAT_CLI_OPTIONS, {0}};
    for (const pl_key *o = own; o->path; o++)
        if (!chat && pl_cli_has(a, o->path)) return pl_fail(err, PL_E_USAGE, "--%s: needs --chat", o->path);
    return PL_OK;
}

const char *pl_chat_cli_date(const pl_cli_args *a, char now[PL_CHAT_NOW]) {
    time_t    at = time(NULL);
    struct tm local;
    localtime_r(&at, &local);
    strftime(now, PL_CHAT_NOW, "%Y-%m-%d %H:%M:%S", &local);
    return pl_cli_has(a, "date") ? pl_cli_text(a, "date") : now;
}

pl_status pl_chat_cli_open(pl_chat_cli *c, const pl_cli_args *a, const char *dir, pl_err *err) {
    memset(c, 0, sizeof *c);
    c->options.kwargs = pl_cli_text(a, "chat-kwargs");
    c->options.date = pl_chat_cli_date(a, c->now);
    return pl_chat_template_open(&c->template, dir, pl_cli_text(a, "chat-template"), err);
}

void pl_chat_cli_close(pl_chat_cli *c) {
    pl_chat_template_close(c->template);
}

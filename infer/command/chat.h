// Command-line options of conversations: the chat template and its variables.
#ifndef PL_COMMAND_CHAT_H
#define PL_COMMAND_CHAT_H

#include "data/chat/prompts.h"
#include "infer/cli/cli.h"

// Rows of a table of options.
#define PL_CHAT_CLI_OPTIONS                                                                                            \
    {PL_OPTION_TEXT("chat-template", "FILE"), .help = "another chat template than the model's own"},                   \
        {PL_OPTION_TEXT("chat-kwargs", "JSON"), .help = "variables of the template: {\"enable_thinking\": false}"}, {  \
        PL_OPTION_TEXT("date", "DATE"),                                                                                \
            .help = "what the template takes for now, YYYY-MM-DD or YYYY-MM-DD HH:MM:SS [now]"                         \
    }

#define PL_CHAT_NOW 32 // bytes of a date and time

typedef struct pl_chat_cli {
    pl_chat_template *template; // owned
    pl_chat_options options;
    char            now[PL_CHAT_NOW];
} pl_chat_cli;

// Returns --date, or the present time, written to now.
const char *pl_chat_cli_date(const pl_cli_args *a, char now[PL_CHAT_NOW]);

// Refuses these options if there is no conversation.
pl_status pl_chat_cli_check(const pl_cli_args *a, bool chat, pl_err *err);

// Opens the template. dir: a model's folder, or its tokenizer's file. *c must not move: the options point into it.
pl_status pl_chat_cli_open(pl_chat_cli *c, const pl_cli_args *a, const char *dir, pl_err *err);
void      pl_chat_cli_close(pl_chat_cli *c);

#endif

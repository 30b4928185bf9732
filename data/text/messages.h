// Conversations inside JSON records, as datasets write them: which member is the list of messages, what the roles mean,
// and a message's content as text.
#ifndef PL_MESSAGES_H
#define PL_MESSAGES_H

#include "kernels/base/status.h"
#include <stdbool.h>

typedef struct pl_json   pl_json;
typedef struct pl_strbuf pl_strbuf;
struct cJSON;

// The role of a turn. Names that datasets use for each are a table in messages.c.
typedef enum pl_role {
    PL_ROLE_UNKNOWN,
    PL_ROLE_USER,
    PL_ROLE_ASSISTANT,
    PL_ROLE_CALL, // the assistant's call of a function, alone in a message (function_call, tool_call)
    PL_ROLE_TOOL, // what a function returned
    PL_ROLE_SYSTEM,
} pl_role;

// Role names for messages to users.
#define PL_ROLES_KNOWN "user, assistant, system, developer, tool, human, gpt, function_call, observation"

pl_role     pl_role_of(const char *name);
// As chat templates spell it: user, assistant (of a call, too), tool, system; NULL: unknown.
const char *pl_role_name(pl_role role);
// The role of a message by its "from" or "role".
pl_role     pl_message_role(const pl_json *j, const struct cJSON *message);

// The record's list of messages: "messages", "conversations", or "turns", "prompt" or "text" where these are lists of
// objects; names in any case. NULL: the record has none.
const struct cJSON *pl_record_messages(const pl_json *j);
bool                pl_record_is_sharegpt(const pl_json *j, const struct cJSON *list); // "from" and "value"

// The system message beside a conversation or prompt, "system" or "system_prompt"; NULL: none.
const char *pl_record_system(const pl_json *j);

// Refuses a content list with a part that is no text by the part's type.
pl_status pl_content_check_parts(const pl_json *j, const struct cJSON *content, pl_err *err);
// Appends a message's content: a string; parts, joined by "\n" as vLLM joins them; nothing for null or no content.
pl_status pl_message_text(const pl_json *j, const struct cJSON *message, pl_strbuf *b, pl_err *err);

#endif

// The turns of a conversation, from the roles of its messages alone.
#include "data/chat/impl.h"
#include "data/text/messages.h"

bool pl_chat_answers(const pl_json *j, const cJSON *e) {
    pl_role role = e ? pl_message_role(j, e) : PL_ROLE_UNKNOWN;
    return role == PL_ROLE_ASSISTANT || role == PL_ROLE_CALL;
}

// cJSON's first child has the last one for prev.
const cJSON *pl_chat_before(const cJSON *list, const cJSON *e) {
    return e == list->child ? NULL : e->prev;
}

// Returns true if a user's or tool's message is e or lies between the last answer and e.
static bool has_question(const pl_json *j, const cJSON *list, const cJSON *e) {
    for (; e && !pl_chat_answers(j, e); e = pl_chat_before(list, e)) {
        pl_role role = pl_message_role(j, e);
        if (role == PL_ROLE_USER || role == PL_ROLE_TOOL) return true;
    }
    return false;
}

bool pl_chat_asks(const pl_json *j, const cJSON *list, const cJSON *e) {
    if (pl_chat_answers(j, e) || (e->next && !pl_chat_answers(j, e->next))) return false;
    return has_question(j, list, e);
}

bool pl_chat_begins_exchange(const pl_json *j, const cJSON *list, const cJSON *e) {
    const cJSON *last = pl_chat_before(list, e);
    return pl_message_role(j, e) == PL_ROLE_USER && !(last && pl_message_role(j, last) == PL_ROLE_USER);
}

bool pl_chat_stays(const pl_json *j, const cJSON *answer) {
    const cJSON *e = answer;
    while (pl_chat_answers(j, e))
        e = e->next;
    for (; e && !pl_chat_answers(j, e); e = e->next) {
        pl_role role = pl_message_role(j, e);
        if (role == PL_ROLE_TOOL || role == PL_ROLE_USER) return role == PL_ROLE_TOOL;
    }
    return false;
}

const cJSON *pl_chat_messages(const pl_json *j) {
    return pl_record_messages(j);
}

int pl_chat_turns(const pl_json *j) {
    const cJSON *list = pl_chat_messages(j), *e;
    int          n = 0;
    if (!list || !cJSON_IsArray(list)) return 0;
    cJSON_ArrayForEach(e, list) n += pl_chat_asks(j, list, e);
    return n;
}

int pl_chat_exchanges(const pl_json *j, int number) {
    const cJSON *list = pl_chat_messages(j), *e;
    int          n = 0;
    if (!list || !cJSON_IsArray(list)) return 0;
    cJSON_ArrayForEach(e, list) {
        n += pl_chat_begins_exchange(j, list, e);
        if (pl_chat_asks(j, list, e) && number-- == 0) break;
    }
    return n;
}

static bool says_nothing(const pl_json *j, const cJSON *answer) {
    return !pl_json_find(j, answer, "content") && !pl_json_find(j, answer, "value") &&
           !pl_json_find(j, answer, "tool_calls") && !pl_json_find(j, answer, "function_call");
}

bool pl_chat_answered(const pl_json *j, int number) {
    const cJSON *list = pl_chat_messages(j), *e;
    if (!list || !cJSON_IsArray(list)) return false;
    cJSON_ArrayForEach(e, list) {
        if (!pl_chat_asks(j, list, e)) continue;
        if (number-- == 0) return true;
        if (!e->next || says_nothing(j, e->next)) return false;
    }
    return false;
}

#include "data/text/messages.h"
#include "data/text/prompts.h"
#include "kernels/base/json.h"
#include "kernels/base/strbuf.h"

#include <string.h>

// ---- roles

pl_role pl_role_of(const char *name) {
    static const struct {
        const char *name;
        pl_role     role;
    } roles[] = {
        {"user", PL_ROLE_USER},
        {"human", PL_ROLE_USER},
        {"prompter", PL_ROLE_USER}, // OpenAssistant
        {"assistant", PL_ROLE_ASSISTANT},
        {"gpt", PL_ROLE_ASSISTANT},
        {"chatgpt", PL_ROLE_ASSISTANT},
        {"bing", PL_ROLE_ASSISTANT},
        {"bard", PL_ROLE_ASSISTANT},
        {"model", PL_ROLE_ASSISTANT}, // Gemma
        {"ai", PL_ROLE_ASSISTANT},
        {"bot", PL_ROLE_ASSISTANT},
        {"chatbot", PL_ROLE_ASSISTANT},
        {"function_call", PL_ROLE_CALL},
        {"tool_call", PL_ROLE_CALL},
        {"tool", PL_ROLE_TOOL},
        {"ipython", PL_ROLE_TOOL},  // Llama 3.1
        {"function", PL_ROLE_TOOL}, // OpenAI's first form
        {"observation", PL_ROLE_TOOL},
        {"function_response", PL_ROLE_TOOL},
        {"function_result", PL_ROLE_TOOL},
        {"tool_response", PL_ROLE_TOOL},
        {"tool_result", PL_ROLE_TOOL},
        {"tool_results", PL_ROLE_TOOL},
        {"system", PL_ROLE_SYSTEM},
        {"developer", PL_ROLE_SYSTEM},
    };
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strcmp(name, roles[i].name) == 0) return roles[i].role;
    return PL_ROLE_UNKNOWN;
}

const char *pl_role_name(pl_role role) {
    static const char *const names[] = {[PL_ROLE_USER] = "user",
                                        [PL_ROLE_ASSISTANT] = "assistant",
                                        [PL_ROLE_CALL] = "assistant",
                                        [PL_ROLE_TOOL] = "tool",
                                        [PL_ROLE_SYSTEM] = "system"};
    return names[role];
}

pl_role pl_message_role(const pl_json *j, const cJSON *message) {
    const cJSON *from = pl_json_find(j, message, "from"), *who = from ? from : pl_json_find(j, message, "role");
    return who && cJSON_IsString(who) ? pl_role_of(who->valuestring) : PL_ROLE_UNKNOWN;
}

// ---- lists

const cJSON *pl_record_messages(const pl_json *j) {
    static const struct {
        const char *name;
        bool        objects; // only as a list of objects
    } members[] = {{"messages", false}, {"conversations", false}, {"turns", true}, {"prompt", true}, {"text", true}};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const cJSON *e = pl_prompts_member(j, members[i].name);
        bool         objects = e && cJSON_IsArray(e) && e->child && cJSON_IsObject(e->child);
        if (e && (objects || !members[i].objects)) return e;
    }
    return NULL;
}

bool pl_record_is_sharegpt(const pl_json *j, const cJSON *list) {
    return list->child && cJSON_IsObject(list->child) && pl_json_find(j, list->child, "from");
}

const char *pl_record_system(const pl_json *j) {
    static const char *const names[] = {"system", "system_prompt"};
    for (int i = 0; i < 2; i++) {
        const cJSON *e = pl_prompts_member(j, names[i]);
        if (e && cJSON_IsString(e) && *e->valuestring) return e->valuestring;
    }
    return NULL;
}

// ---- content

// Returns the text of a part of a content list: a string, or "text" under "type": "text", "input_text" or
// "output_text"; NULL: the part has none.
static const char *part_text(const pl_json *j, const cJSON *part) {
    static const char *const types[] = {"text", "input_text", "output_text"};
    if (cJSON_IsString(part)) return part->valuestring;
    if (!cJSON_IsObject(part)) return NULL;
    const cJSON *type = pl_json_find(j, part, "type"), *text = pl_json_find(j, part, "text");
    bool         known = !type;
    for (size_t i = 0; type && i < sizeof types / sizeof *types; i++)
        known |= cJSON_IsString(type) && strcmp(type->valuestring, types[i]) == 0;
    return known && text && cJSON_IsString(text) ? text->valuestring : NULL;
}

pl_status pl_content_check_parts(const pl_json *j, const cJSON *content, pl_err *err) {
    const cJSON *e;
    if (!cJSON_IsArray(content)) return PL_OK;
    cJSON_ArrayForEach(e, content) {
        if (part_text(j, e)) continue;
        const cJSON *type = cJSON_IsObject(e) ? pl_json_find(j, e, "type") : NULL;
        if (type && cJSON_IsString(type))
            return pl_json_fail(j, e, err, "a part of the type \"%s\"; parts of text alone are read",
                                type->valuestring);
        return pl_json_fail(j, e, err, "a part without text; content is a string or a list of parts of text");
    }
    return PL_OK;
}

static void add_line(pl_strbuf *b, size_t from, const char *s) {
    if (b->n > from) pl_strbuf_add(b, "\n", 1);
    pl_strbuf_add(b, s, strlen(s));
}

pl_status pl_message_text(const pl_json *j, const cJSON *message, pl_strbuf *b, pl_err *err) {
    const cJSON *value = pl_json_find(j, message, "value"), *e;
    const cJSON *content = value ? value : pl_json_find(j, message, "content");
    const char  *s;
    size_t       from = b->n;
    if (!content) return PL_OK;
    if (!cJSON_IsArray(content)) {
        PL_TRY(pl_json_str_of(j, content, &s, err));
        pl_strbuf_add(b, s, strlen(s));
        return PL_OK;
    }
    PL_TRY(pl_content_check_parts(j, content, err));
    cJSON_ArrayForEach(e, content) add_line(b, from, part_text(j, e));
    return PL_OK;
}

// `paceline serve` through sockets: answers equal `paceline decode`'s whole, streamed and beside others; errors by
// status; clients that leave; the end.
#include "kernels/base/arena.h"
#include "kernels/base/clock.h"
#include "kernels/base/strbuf.h"
#include "program.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define TARGET "--target checkpoints/tiny --threads 1"
#define JSON "Content-Type: application/json\r\n"

typedef struct server {
    test_child child;
    int        port;
} server;

// One without a drafter; one with a drafter, one session, a key and pages of one origin; one whose template has tools.
static server plain, guarded, calling;
static char   base[64], template[96];

#define TOOLS                                                                                                          \
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"look\", \"parameters\": {\"type\": \"object\", "  \
    "\"properties\": {\"at\": {\"enum\": [\"sea\", \"sky\"]}, \"n\": {\"type\": \"integer\", \"minimum\": 1, "         \
    "\"maximum\": "                                                                                                    \
    "9}}, \"required\": [\"at\"]}}}, {\"type\": \"function\", \"function\": {\"name\": \"wait\"}}]"

// ---- a client -------------------------------------------------------------------------------------------------------

static void end_with_parent(const void *arg) {
    (void)arg;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static void start_server(server *s, const char *options) {
    char   line[512] = "";
    double until = pl_now() + 30;
    test_start(&s->child, end_with_parent, NULL, "serve " TARGET " --port 0 --quiet %s", options);
    while (!strchr(line, '\n') && pl_now() < until) {
        ssize_t n = pread(fileno(s->child.out), line, sizeof line - 1, 0);
        line[n > 0 ? n : 0] = 0;
        usleep(2000);
    }
    const char *colon = strrchr(line, ':');
    if (!strstr(line, "tiny at http://127.0.0.1:") || !colon) fail_msg("the server says: %s", line);
    s->port = atoi(colon + 1);
}

static int connect_to(const server *s) {
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)s->port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

// Sends a request and returns its connection. headers: lines that end in CR LF.
static int send_request(const server *s, const char *method, const char *path, const char *headers, const char *body) {
    int   fd = connect_to(s);
    char *text = pl_sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%sContent-Length: %zu\r\n\r\n%s",
                            method, path, headers, strlen(body), body);
    assert_non_null(text);
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
    pl_free(text);
    return fd;
}

// Joins the chunks of a body in place.
static void join_chunks(char *body) {
    char *to = body, *at = body, *end;
    for (long n; (n = strtol(at, &end, 16)) > 0;) {
        at = end + 2;
        memmove(to, at, (size_t)n);
        to += n;
        at += n + 2;
    }
    *to = 0;
}

// Reads an answer to its end; returns its status. *head: pl_free; the body stands in it.
static int read_reply(int fd, char **head, char **body) {
    pl_strbuf b = {0};
    char      part[4096];
    ssize_t   n;
    while ((n = recv(fd, part, sizeof part, 0)) > 0)
        pl_strbuf_add(&b, part, (size_t)n);
    close(fd);
    *head = pl_strbuf_take(&b);
    assert_non_null(*head);
    *body = strstr(*head, "\r\n\r\n");
    if (!*body) fail_msg("no answer: \"%s\"", *head);
    **body = 0;
    *body += 4;
    if (strstr(*head, "chunked")) join_chunks(*body);
    return atoi(*head + strlen("HTTP/1.1 "));
}

static int ask_with(const server *s, const char *method, const char *path, const char *headers, const char *body,
                    char **head, char **text) {
    return read_reply(send_request(s, method, path, headers, body), head, text);
}

static const char *key_of(const server *s) {
    return s == &guarded ? JSON "Authorization: Bearer sk-test\r\n" : JSON;
}

// Expects an answer of 200 in JSON.
static void ask_json(pl_json *j, const server *s, const char *path, const char *body) {
    char  *head, *text;
    pl_err err;
    int    status = ask_with(s, *body ? "POST" : "GET", path, key_of(s), body, &head, &text);
    if (status != 200) fail_msg("%s: %d %s", body, status, text);
    if (pl_json_parse(j, "answer", 0, text, strlen(text), 0, &err) != PL_OK) fail_msg("%s: %s", err.msg, text);
    pl_free(head);
}

static const cJSON *choice(const pl_json *j, int i) {
    return cJSON_GetArrayItem(test_array(j, NULL, "choices"), i);
}

static const char *text_of(const pl_json *j, int i) {
    const cJSON *c = choice(j, i);
    return pl_json_find(j, c, "message") ? test_str(j, c, "message.content") : test_str(j, c, "text");
}

// Joins the text of a stream's choice `index`; checks its form. *finish: static.
static void ask_stream(const server *s, const char *path, const char *body, int index, pl_strbuf *text,
                       char finish[16]) {
    char *head, *events;
    int   status = ask_with(s, "POST", path, key_of(s), body, &head, &events), roles = 0;
    bool  done = false;
    *finish = 0;
    if (status != 200 || !strstr(head, "text/event-stream")) fail_msg("%s: %s\n%s", body, head, events);
    for (char *at = events, *end; *at; at = end + 2) {
        pl_json      j;
        const cJSON *c;
        end = strstr(at, "\n\n");
        if (!end || done || strncmp(at, "data: ", 6) != 0) fail_msg("not an event: %s", at);
        *end = 0;
        if ((done = strcmp(at, "data: [DONE]") == 0)) continue;
        assert_int_equal(pl_json_parse(&j, "event", 0, at + 6, strlen(at + 6), 0, NULL), PL_OK);
        cJSON_ArrayForEach(c, test_array(&j, NULL, "choices")) {
            if ((int)test_num(&j, c, "index") != index) continue;
            bool         chat = pl_json_find(&j, c, "delta") != NULL;
            const cJSON *part = pl_json_find(&j, c, chat ? "delta.content" : "text");
            const cJSON *why = pl_json_find(&j, c, "finish_reason");
            roles += pl_json_find(&j, c, "delta.role") != NULL;
            assert_string_equal(finish, "");
            if (part) pl_strbuf_add(text, part->valuestring, strlen(part->valuestring));
            if (why) snprintf(finish, 16, "%s", why->valuestring);
        }
        pl_json_close(&j);
    }
    assert_true(done);
    assert_int_equal(roles, strstr(path, "chat") ? 1 : 0);
    pl_strbuf_add(text, "", 1);
    pl_free(head);
}

// The text that `paceline decode` gives. pl_free.
static char *decoded(const char *options) {
    pl_json j;
    test_run_json(&j, "decode " TARGET " --json --quiet %s", options);
    char *text = pl_strdup(test_str(&j, NULL, "text"));
    pl_json_close(&j);
    return text;
}

// ---- tools and reasoning --------------------------------------------------------------------------------------------

// Appends the parts of a message, or of a chunk's delta, each to its own text.
static void add_parts(const pl_json *j, const cJSON *m, pl_strbuf part[3]) {
    static const char *const name[] = {"reasoning_content", "content"};
    const cJSON             *call;
    for (int i = 0; i < 2; i++) {
        const cJSON *text = pl_json_find(j, m, name[i]);
        if (text) pl_strbuf_add(&part[i], text->valuestring, strlen(text->valuestring));
    }
    cJSON_ArrayForEach(call, pl_json_find(j, m, "tool_calls")) {
        assert_string_equal(test_str(j, call, "type"), "function");
        assert_int_equal(strncmp(test_str(j, call, "id"), "call_", 5), 0);
        char *line = pl_sprintf("%s %s|", test_str(j, call, "function.name"), test_str(j, call, "function.arguments"));
        pl_strbuf_add(&part[2], line, strlen(line));
        pl_free(line);
    }
}

// Asks whole and streamed, which have the same parts. part[i].s may be NULL: empty.
static void ask_parts(const char *fields, pl_strbuf part[3], char finish[16]) {
    pl_json j;
    char *head, *events, *body = pl_sprintf("{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], %s}", fields);
    pl_strbuf joined[3] = {{0}};
    ask_json(&j, &calling, "/v1/chat/completions", body);
    add_parts(&j, pl_json_find(&j, choice(&j, 0), "message"), part);
    snprintf(finish, 16, "%s", test_str(&j, choice(&j, 0), "finish_reason"));
    pl_json_close(&j);
    pl_free(body);
    body = pl_sprintf("{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"stream\": true, %s}", fields);
    assert_int_equal(ask_with(&calling, "POST", "/v1/chat/completions", JSON, body, &head, &events), 200);
    for (char *at = events, *end; strncmp(at, "data: [DONE]", 12) != 0; at = end + 2) {
        end = strstr(at, "\n\n");
        *end = 0;
        assert_int_equal(pl_json_parse(&j, "event", 0, at + 6, strlen(at + 6), 0, NULL), PL_OK);
        add_parts(&j, pl_json_find(&j, choice(&j, 0), "delta"), joined);
        pl_json_close(&j);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(part[i].n, joined[i].n);
        if (part[i].n) assert_memory_equal(part[i].s, joined[i].s, part[i].n);
        pl_strbuf_add(&part[i], "", 1);
        pl_strbuf_fini(&joined[i]);
    }
    pl_free(head);
    pl_free(body);
}

static void free_parts(pl_strbuf part[3]) {
    for (int i = 0; i < 3; i++)
        pl_strbuf_fini(&part[i]);
}

static void tool_calls(void **state) {
    (void)state;
    static const char *const choices[] = {"\"required\"",
                                          "{\"type\": \"function\", \"function\": {\"name\": \"look\"}}"};
    char                     fields[1024], finish[16];
    for (int k = 0; k < 6; k++) {
        pl_strbuf part[3] = {{0}};
        snprintf(fields, sizeof fields,
                 TOOLS ", \"tool_choice\": %s, \"parallel_tool_calls\": false, \"seed\": %d, \"temperature\": %d, "
                       "\"chat_template_kwargs\": {\"think\": false}",
                 choices[k % 2], k, k / 2);
        ask_parts(fields, part, finish);
        assert_string_equal(finish, "tool_calls");
        assert_string_equal(part[0].s, "");
        assert_string_equal(part[1].s, "");
        bool look = strncmp(part[2].s, "look {", 6) == 0;
        assert_true(look || (k % 2 == 0 && strncmp(part[2].s, "wait {", 6) == 0));
        if (look) assert_true(strstr(part[2].s, "\"sea\"") || strstr(part[2].s, "\"sky\""));
        assert_ptr_equal(strchr(part[2].s, '|') + 1, part[2].s + strlen(part[2].s)); // one call
        free_parts(part);
    }
}

// The prompt has begun <think>, which this model does not close; one that has closed it has content alone.
static void reasoning(void **state) {
    (void)state;
    char finish[16];
    for (int k = 0; k < 2; k++) {
        pl_strbuf part[3] = {{0}};
        ask_parts(k ? "\"max_tokens\": 12, \"temperature\": 0, \"chat_template_kwargs\": {\"think\": false}"
                    : "\"max_tokens\": 12, \"temperature\": 0, \"chat_template_kwargs\": {\"think\": true}",
                  part, finish);
        assert_string_equal(finish, "length");
        assert_true(strlen(part[k].s) > 5);
        assert_string_equal(part[!k].s, "");
        free_parts(part);
    }
}

// The tokens of a conversation are those of the text that the template writes, with tools, calls and results.
static void templates_take_tools(void **state) {
    (void)state;
    pl_json a, b;
    ask_json(
        &a, &calling, "/tokenize",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", \"content\": null, "
        "\"tool_calls\": [{\"id\": \"c\", \"type\": \"function\", \"function\": {\"name\": \"wait\", \"arguments\": "
        "\"{\\\"n\\\": 1}\"}}]}, {\"role\": \"tool\", \"tool_call_id\": \"c\", \"content\": \"done\"}], \"tools\": "
        "[{\"type\": \"function\", \"function\": {\"name\": \"wait\"}}]}");
    ask_json(&b, &calling, "/tokenize",
             "{\"prompt\": \"wait in <tool_call>.\\nuser: Hi\\nassistant: <tool_call>\\n{\\\"name\\\": \\\"wait\\\", "
             "\\\"arguments\\\": {\\\"n\\\": 1}}\\n</tool_call>\\ntool: done\\nassistant:\", \"add_special_tokens\": "
             "false}");
    assert_true(cJSON_Compare(test_array(&a, NULL, "tokens"), test_array(&b, NULL, "tokens"), true));
    pl_json_close(&a);
    pl_json_close(&b);
    double tokens[2];
    for (int k = 0; k < 2; k++) { // none: the tools are not written
        char body[1024];
        snprintf(body, sizeof body,
                 "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], " TOOLS ", \"tool_choice\": \"%s\", "
                 "\"max_tokens\": 1}",
                 k ? "none" : "auto");
        ask_json(&a, &calling, "/v1/chat/completions", body);
        tokens[k] = test_num(&a, NULL, "usage.prompt_tokens");
        pl_json_close(&a);
    }
    assert_true(tokens[1] < tokens[0]);
}

static double metric(const server *s, const char *sample) {
    char *head, *text;
    assert_int_equal(ask_with(s, "GET", "/metrics", key_of(s), "", &head, &text), 200);
    const char *at = strstr(text, sample);
    if (!at) fail_msg("no %s in %s", sample, text);
    double x = atof(strchr(at, ' ') + 1);
    pl_free(head);
    return x;
}

// ---- texts ----------------------------------------------------------------------------------------------------------

static const struct {
    const char *options, *fields; // of decode, of a request
} ways[] = {
    {"-n 30", "\"temperature\": 0, \"max_tokens\": 30"},
    {"-n 20 --temperature 0.8 --top-k 20 --seed 7",
     "\"temperature\": 0.8, \"top_k\": 20, \"seed\": 7, \"max_tokens\": 20"},
    {"-n 20 --temperature 1.2 --repetition-penalty 1.3 --min-p 0.05 --seed 3",
     "\"temperature\": 1.2, \"repetition_penalty\": 1.3, \"min_p\": 0.05, \"seed\": 3, \"max_tokens\": 20"},
};

// Whole and streamed, on both servers; greedy ones twice: the second finds the prompt's prefix in its cache.
static void texts_are_those_of_decode(void **state) {
    (void)state;
    const server *const servers[] = {&plain, &guarded};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char options[256], body[512], streamed[512], finish[16];
        snprintf(options, sizeof options, "-p 'Once upon a time' %s", ways[i].options);
        snprintf(body, sizeof body, "{\"prompt\": \"Once upon a time\", %s}", ways[i].fields);
        snprintf(streamed, sizeof streamed, "{\"prompt\": \"Once upon a time\", \"stream\": true, %s}", ways[i].fields);
        char *want = decoded(options);
        for (int k = 0; k < (i == 0 ? 4 : 2); k++) {
            pl_json   j;
            pl_strbuf text = {0};
            ask_json(&j, servers[k % 2], "/v1/completions", body);
            assert_string_equal(text_of(&j, 0), want);
            pl_json_close(&j);
            ask_stream(servers[k % 2], "/v1/completions", streamed, 0, &text, finish);
            assert_string_equal(text.s, want);
            assert_string_equal(finish, "length");
            pl_strbuf_fini(&text);
        }
        pl_free(want);
    }
}

static void conversations(void **state) {
    (void)state;
    char        options[256], finish[16];
    pl_json     j;
    pl_strbuf   text = {0};
    const char *said = "{\"model\": \"tiny\", \"messages\": [{\"role\": \"developer\", \"content\": \"Be brief\"}, "
                       "{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"Hi\"}]}], "
                       "\"temperature\": 0, \"max_tokens\": 20%s}";
    char        body[512];
    snprintf(options, sizeof options, "--chat --system 'Be brief' -p Hi --chat-template %s -n 20", template);
    char *want = decoded(options);
    snprintf(body, sizeof body, said, "");
    ask_json(&j, &plain, "/v1/chat/completions", body);
    assert_string_equal(text_of(&j, 0), want);
    assert_string_equal(test_str(&j, NULL, "object"), "chat.completion");
    assert_string_equal(test_str(&j, choice(&j, 0), "message.role"), "assistant");
    assert_true(test_num(&j, NULL, "usage.completion_tokens") == 20);
    pl_json_close(&j);
    snprintf(body, sizeof body, said, ", \"stream\": true, \"stream_options\": {\"include_usage\": true}");
    ask_stream(&plain, "/v1/chat/completions", body, 0, &text, finish);
    assert_string_equal(text.s, want);
    pl_strbuf_fini(&text);
    pl_free(want);
    ask_json(&j, &plain, "/tokenize", "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}");
    assert_true(test_num(&j, NULL, "count") > 3);
    pl_json_close(&j);
}

// Prompts as ids and in lists; choices by key; a seed gives the first choice of `decode`.
static void lists_and_choices(void **state) {
    (void)state;
    pl_json j;
    char   *one = decoded("--prompt-ids 1,5460,730 -n 12"), *two = decoded("-p 'The dog' -n 12");
    ask_json(&j, &plain, "/v1/completions",
             "{\"prompt\": [[1, 5460, 730], \"The dog\"], \"n\": 2, \"temperature\": 0, \"max_tokens\": 12}");
    assert_int_equal(cJSON_GetArraySize(test_array(&j, NULL, "choices")), 4);
    for (int i = 0; i < 4; i++)
        assert_string_equal(text_of(&j, i), i < 2 ? one : two);
    pl_json_close(&j);
    pl_free(one);
    pl_free(two);
    char *want = decoded("-p 'The dog' -n 30 --temperature 1 --seed 5");
    ask_json(&j, &plain, "/v1/completions", "{\"prompt\": \"The dog\", \"n\": 3, \"seed\": 5, \"max_tokens\": 30}");
    assert_string_equal(text_of(&j, 0), want);
    assert_string_not_equal(text_of(&j, 1), want);
    assert_string_not_equal(text_of(&j, 1), text_of(&j, 2));
    pl_json_close(&j);
    pl_free(want);
}

static void stop_strings(void **state) {
    (void)state;
    char        body[512], stop[16], finish[16];
    char       *want = decoded("-p 'Once upon a time' -n 60");
    static char cut[512];
    for (size_t from = 11; from < 60; from += 7) { // across tokens and steps
        pl_json   j;
        pl_strbuf text = {0};
        snprintf(stop, sizeof stop, "%.9s", want + from);
        if (strpbrk(stop, "\"\n\\")) continue;
        snprintf(cut, sizeof cut, "%.*s", (int)(strstr(want, stop) - want), want);
        for (int k = 0; k < 2; k++) {
            snprintf(body, sizeof body,
                     "{\"prompt\": \"Once upon a time\", \"temperature\": 0, \"max_tokens\": 60, \"stop\": \"%s\"%s}",
                     stop, k ? ", \"stream\": true" : "");
            if (k) {
                ask_stream(&guarded, "/v1/completions", body, 0, &text, finish);
                assert_string_equal(text.s, cut);
                assert_string_equal(finish, "stop");
                pl_strbuf_fini(&text);
                continue;
            }
            ask_json(&j, &plain, "/v1/completions", body);
            assert_string_equal(text_of(&j, 0), cut);
            assert_string_equal(test_str(&j, choice(&j, 0), "finish_reason"), "stop");
            pl_json_close(&j);
        }
    }
    pl_free(want);
}

// Requests at once: more than there are sessions, each with its own text.
static void many_at_once(void **state) {
    (void)state;
    static const char *const prompts[] = {"Once upon a time", "The dog was", "One day",     "Lily had a red",
                                          "In the forest",    "Tom and Mia", "It was dark", "A big bear"};
    enum { MANY = 8 };
    char *want[MANY];
    int   fd[MANY];
    for (int i = 0; i < MANY; i++) { // alone, which has the text of `decode`
        char    body[256];
        pl_json j;
        snprintf(body, sizeof body, "{\"prompt\": \"%s\", \"temperature\": 0, \"max_tokens\": 20}", prompts[i]);
        ask_json(&j, &plain, "/v1/completions", body);
        want[i] = pl_strdup(text_of(&j, 0));
        pl_json_close(&j);
    }
    for (int k = 0; k < 2; k++) {
        const server *s = k ? &guarded : &plain;
        for (int i = 0; i < MANY; i++) {
            char body[256];
            snprintf(body, sizeof body, "{\"prompt\": \"%s\", \"temperature\": 0, \"max_tokens\": 20}", prompts[i]);
            fd[i] = send_request(s, "POST", "/v1/completions", key_of(s), body);
        }
        for (int i = MANY - 1; i >= 0; i--) {
            pl_json j;
            char   *head, *body;
            int     status = read_reply(fd[i], &head, &body);
            if (status != 200) fail_msg("%d: %s", status, body);
            assert_int_equal(pl_json_parse(&j, "answer", 0, body, strlen(body), 0, NULL), PL_OK);
            assert_string_equal(text_of(&j, 0), want[i]);
            pl_json_close(&j);
            pl_free(head);
        }
    }
    for (int i = 0; i < MANY; i++)
        pl_free(want[i]);
}

// Log-probabilities of an answer are those that scoring prompt and answer as a prompt gives.
static void log_probabilities(void **state) {
    (void)state;
    pl_json      a, b;
    char         body[1024];
    int          n = 0;
    const cJSON *e;
    pl_json      ids;
    test_run_json(&ids, "decode " TARGET " --json --quiet --prompt-ids 1,5460,730 -n 8");
    n = snprintf(body, sizeof body, "{\"prompt\": [1, 5460, 730");
    cJSON_ArrayForEach(e, test_array(&ids, NULL, "tokens")) n +=
        snprintf(body + n, sizeof body - (size_t)n, ", %d", e->valueint);
    snprintf(body + n, sizeof body - (size_t)n, "], \"echo\": true, \"max_tokens\": 0, \"logprobs\": 2}");
    ask_json(&a, &guarded, "/v1/completions",
             "{\"prompt\": [1, 5460, 730], \"temperature\": 0, \"max_tokens\": 8, \"logprobs\": 2}");
    ask_json(&b, &plain, "/v1/completions", body);
    const cJSON *said = test_array(&a, choice(&a, 0), "logprobs.token_logprobs");
    const cJSON *scored = test_array(&b, choice(&b, 0), "logprobs.token_logprobs");
    assert_int_equal(cJSON_GetArraySize(said), 8);
    assert_int_equal(cJSON_GetArraySize(scored), 11);
    assert_true(cJSON_IsNull(cJSON_GetArrayItem(scored, 0)));
    for (int i = 0; i < 8; i++) {
        double x = cJSON_GetArrayItem(said, i)->valuedouble;
        assert_true(x <= 0 && x == cJSON_GetArrayItem(scored, 3 + i)->valuedouble);
        const cJSON *top = cJSON_GetArrayItem(test_array(&a, choice(&a, 0), "logprobs.top_logprobs"), i);
        assert_true(cJSON_GetArraySize(top) == 2 && top->child->valuedouble == x); // greedy
    }
    assert_true(test_num(&b, NULL, "usage.completion_tokens") == 0);
    pl_json_close(&a);
    pl_json_close(&b);
    pl_json_close(&ids);
    ask_json(&a, &plain, "/v1/chat/completions",
             "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"temperature\": 0, \"max_tokens\": 3, "
             "\"logprobs\": true, \"top_logprobs\": 1}");
    const cJSON *content = test_array(&a, choice(&a, 0), "logprobs.content");
    assert_int_equal(cJSON_GetArraySize(content), 3);
    cJSON_ArrayForEach(e, content) {
        const cJSON *best = cJSON_GetArrayItem(test_array(&a, e, "top_logprobs"), 0);
        assert_string_equal(test_str(&a, e, "token"), test_str(&a, best, "token"));
        assert_true(test_num(&a, e, "logprob") == test_num(&a, best, "logprob"));
    }
    pl_json_close(&a);
}

// llama.cpp's endpoint: whole and streamed the text of `decode`, the same tokens, and why it ended.
static void native_whole(cJSON **tokens, const char *want) {
    pl_json j;
    ask_json(&j, &guarded, "/completion",
             "{\"prompt\": \"Once upon a time\", \"temperature\": 0, \"n_predict\": 24, \"return_tokens\": true, "
             "\"n_probs\": 2}");
    assert_string_equal(test_str(&j, NULL, "content"), want);
    assert_string_equal(test_str(&j, NULL, "stop_type"), "limit");
    assert_true(test_num(&j, NULL, "tokens_predicted") == 24 && test_num(&j, NULL, "timings.predicted_n") == 24);
    assert_true(test_num(&j, NULL, "tokens_evaluated") == 5 && test_num(&j, NULL, "generation_settings.top_k") == 40);
    *tokens = cJSON_Duplicate(test_array(&j, NULL, "tokens"), true);
    const cJSON *probs = test_array(&j, NULL, "completion_probabilities");
    assert_int_equal(cJSON_GetArraySize(*tokens), 24);
    assert_int_equal(cJSON_GetArraySize(probs), 24);
    assert_true(test_num(&j, probs->child, "id") == (*tokens)->child->valuedouble);
    assert_int_equal(cJSON_GetArraySize(test_array(&j, probs->child, "top_logprobs")), 2);
    pl_json_close(&j);
}

static void native_stream(cJSON *tokens, pl_strbuf *text) {
    pl_json     j;
    bool        stop = false;
    const char *body = "{\"prompt\": \"Once upon a time\", \"temperature\": 0, \"n_predict\": 24, \"stream\": true}";
    char       *head, *events;
    assert_int_equal(ask_with(&plain, "POST", "/completions", JSON, body, &head, &events), 200);
    for (char *at = events, *end; *at; at = end + 2) {
        const cJSON *e;
        assert_false(stop);
        end = strstr(at, "\n\n");
        *end = 0;
        assert_int_equal(pl_json_parse(&j, "event", 0, at + 6, strlen(at + 6), 0, NULL), PL_OK);
        pl_strbuf_add(text, test_str(&j, NULL, "content"), strlen(test_str(&j, NULL, "content")));
        cJSON_ArrayForEach(e, test_array(&j, NULL, "tokens"))
            cJSON_AddItemToArray(tokens, cJSON_CreateNumber(e->valueint));
        stop = cJSON_IsTrue(pl_json_find(&j, NULL, "stop"));
        assert_true(stop == (pl_json_find(&j, NULL, "timings") != NULL));
        pl_json_close(&j);
    }
    assert_true(stop);
    pl_strbuf_add(text, "", 1);
    pl_free(head);
}

static void native_completion(void **state) {
    (void)state;
    pl_json   j;
    cJSON    *whole, *streamed = cJSON_CreateArray();
    char     *want = decoded("-p 'Once upon a time' -n 24");
    pl_strbuf text = {0};
    native_whole(&whole, want);
    native_stream(streamed, &text);
    assert_string_equal(text.s, want);
    assert_true(cJSON_Compare(streamed, whole, true));
    cJSON_Delete(streamed);
    cJSON_Delete(whole);
    pl_strbuf_fini(&text);
    pl_free(want);
    ask_json(&j, &plain, "/completion",
             "{\"prompt\": [\"One\", [1, 5460]], \"temperature\": 0, \"n_predict\": 30, \"stop\": [\"zzz\", \"e\"], "
             "\"logit_bias\": "
             "[[\" day\", false]]}");
    const cJSON *first = j.root->child;
    assert_int_equal(cJSON_GetArraySize(j.root), 2);
    assert_string_equal(test_str(&j, first, "stop_type"), "word");
    assert_string_equal(test_str(&j, first, "stopping_word"), "e");
    assert_null(strstr(test_str(&j, first, "content"), " day"));
    pl_json_close(&j);
}

static void speculation(void **state) {
    (void)state;
    pl_json     j;
    const char *body = "{\"prompt\": \"The dog. The dog. The dog.\", \"temperature\": 0, \"max_tokens\": 40%s}";
    char        text[3][512];
    for (int i = 0; i < 3; i++) {
        char asked[256];
        snprintf(asked, sizeof asked, body,
                 i == 0   ? ", \"speculative\": {\"method\": \"lookup\", \"tree\": \"chain:4\", \"verify\": \"match\"}"
                 : i == 1 ? ", \"speculative\": {\"method\": \"off\"}"
                          : ", \"speculative.n_max\": 1");
        ask_json(&j, &guarded, "/v1/completions", asked);
        snprintf(text[i], sizeof text[i], "%s", text_of(&j, 0));
        double drafted = test_num(&j, NULL, "usage.speculative_decoding.drafted");
        int    depth = cJSON_GetArraySize(test_array(&j, NULL, "usage.speculative_decoding.accepted_by_position"));
        assert_true(i == 1 ? drafted == 0 : drafted > 0);
        assert_true(i == 1 ? depth == 0 : i == 2 ? depth == 1 : depth > 1);
        assert_string_equal(text[i], text[0]);
        pl_json_close(&j);
    }
    assert_true(metric(&guarded, "vllm:spec_decode_num_draft_tokens_total{") > 0);
}

// ---- errors ---------------------------------------------------------------------------------------------------------

static const struct {
    int         server; // 0: plain, 1: guarded, 2: calling
    const char *method, *path, *headers, *body;
    int         status;
    const char *says;
} wrong[] = {
    {0, "POST", "/v1/completions", JSON, "{\"prompt\": \"a\", \"n\": 0}", 400, "\"param\":\"n\""},
    {0, "POST", "/v1/completions", JSON, "{\"prompt\": \"\", \"add_special_tokens\": false}", 400,
     "the prompt is empty"},
    {0, "POST", "/v1/completions", JSON, "{\"prompt\": [70000]}", 400, "outside the vocabulary"},
    {0, "POST", "/v1/completions", JSON, "{\"prompt\": [1], \"logit_bias\": {\"70000\": 1}}", 400, "logit_bias"},
    {0, "POST", "/v1/completions", JSON, "{\"prompt\": [1], \"n\": 99}", 400, "fewer slots"},
    {0, "POST", "/completion", JSON, "{\"prompt\": [1], \"speculative\": {\"method\": \"lookup\"}}", 400,
     "without a --drafter"},
    {2, "POST", "/completion", JSON, "{\"prompt\": [1], \"speculative\": {\"method\": \"kup\"}}", 400,
     "share the server's \\\"lookup"},
    {2, "POST", "/completion", JSON, "{\"prompt\": [1], \"speculative\": {\"tree\": \"chain:2\"}}", 400, "chain:4"},
    {2, "POST", "/completion", JSON, "{\"prompt\": [1], \"speculative\": {\"verify\": \"typical\"}}", 400, "match"},
    {0, "POST", "/completion", JSON, "{\"prompt\": [1], \"logit_bias\": [[70000, 1]]}", 400, "logit_bias"},
    {0, "POST", "/completion", JSON, "{\"prompt\": [1], \"top_k\": \"x\"}", 400, "\"param\":\"top_k\""},
    {0, "POST", "/v1/completions", JSON, "{", 400, "body:1:"},
    {0, "POST", "/v1/completions", JSON, "{\"prompt\": \"a\", \"model\": \"gpt\"}", 404, "model_not_found"},
    {0, "POST", "/v1/completions", "", "{}", 415, "application/json"},
    {0, "POST", "/v1/completions", "Content-Type: text/plain\r\n", "{}", 415, "application/json"},
    {0, "GET", "/v1/completions", "", "", 405, "does not take that method"},
    {0, "OPTIONS", "/v1/completions", "", "", 405, "does not take that method"},
    {0, "GET", "/v2", "", "", 404, "no such path"},
    {0, "GET", "/v1/models/gpt", "", "", 404, "model_not_found"},
    {0, "POST", "/detokenize", JSON, "{\"tokens\": [70000]}", 400, "outside the vocabulary"},
    {0, "POST", "/v1/chat/completions", JSON, "{\"messages\": [{\"role\": \"user\"}, 1]}", 400, "messages"},
    {0, "POST", "/v1/chat/completions", JSON,
     "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]}", 400, "messages"},
    {0, "POST", "/v1/chat/completions", JSON, "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], " TOOLS "}",
     400, "does not write them"},
    {2, "POST", "/v1/chat/completions", JSON,
     "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"tools\": [{\"function\": {\"name\": \"f\", "
     "\"parameters\": {\"not\": {}}}}], \"tool_choice\": \"required\"}",
     400, "tools[0].parameters.not: this keyword"},
    {1, "POST", "/v1/chat/completions", JSON "Authorization: Bearer sk-test\r\n",
     "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}", 400, "has no chat template"},
    {1, "POST", "/v1/completions", JSON, "{\"prompt\": \"a\"}", 401, "invalid_api_key"},
    {1, "POST", "/v1/completions", JSON "Authorization: Bearer sk-tes\r\n", "{\"prompt\": \"a\"}", 401,
     "authentication_error"},
    {1, "GET", "/metrics", "", "", 401, "invalid_api_key"},
};

static void errors(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char   *head, *body;
        pl_json j;
        int     status = ask_with(wrong[i].server == 0   ? &plain
                                  : wrong[i].server == 1 ? &guarded
                                                         : &calling,
                              wrong[i].method, wrong[i].path, wrong[i].headers, wrong[i].body, &head, &body);
        if (status != wrong[i].status || !strstr(body, wrong[i].says))
            fail_msg("%s %s: %d %s", wrong[i].path, wrong[i].body, status, body);
        assert_int_equal(pl_json_parse(&j, "error", 0, body, strlen(body), 0, NULL), PL_OK);
        assert_true(strlen(test_str(&j, NULL, "error.message")) > 0);
        pl_json_close(&j);
        pl_free(head);
    }
}

// Sends raw bytes and returns the answer's status; its head holds `part`.
static void expect_raw(const server *s, const char *text, int status, const char *part) {
    int   fd = connect_to(s);
    char *head, *body;
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
    int got = read_reply(fd, &head, &body);
    if (got != status || !strstr(head, part)) fail_msg("%s: %d %s", text, got, head);
    pl_free(head);
}

static void heads(void **state) {
    (void)state;
    expect_raw(&plain, "GET /health HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", 403, "json");
    expect_raw(&plain, "GET /health HTTP/1.0\r\n\r\n", 200, "json");
    expect_raw(&plain, "HEAD /v1/models HTTP/1.1\r\nHost: [::1]:1\r\nConnection: close\r\n\r\n", 200, "json");
    expect_raw(&plain, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" JSON "Content-Length: 99999999\r\n\r\n",
               413, "json");
    expect_raw(&guarded,
               "OPTIONS /v1/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: http://page.example\r\n"
               "Access-Control-Request-Method: POST\r\nConnection: close\r\n\r\n",
               204, "Access-Control-Allow-Origin: http://page.example");
    // A body in chunks, after "100 Continue"; a field without effect is named.
    expect_raw(&plain,
               "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" JSON
               "Transfer-Encoding: chunked\r\n\r\n1e\r\n{\"prompt\": \"a\", \"max_tokens\": \r\nd\r\n1,\"user\":\"u\"}"
               "\r\n0\r\n\r\n",
               200, "x-paceline-ignored: user");
    int  fd = connect_to(&plain);
    char text[64] = "", expects[] = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" JSON
                                    "Expect: 100-continue\r\nContent-Length: 17\r\n\r\n";
    assert_int_equal(send(fd, expects, strlen(expects), MSG_NOSIGNAL), strlen(expects));
    assert_true(recv(fd, text, sizeof text - 1, 0) > 0);
    assert_non_null(strstr(text, "100 Continue"));
    char *head, *body;
    assert_int_equal(send(fd, "{\"prompt\": \"one\"}", 17, MSG_NOSIGNAL), 17);
    assert_int_equal(read_reply(fd, &head, &body), 200);
    pl_free(head);
}

static void lists_models(void **state) {
    (void)state;
    pl_json j;
    ask_json(&j, &plain, "/v1/models", "");
    assert_string_equal(test_str(&j, cJSON_GetArrayItem(test_array(&j, NULL, "data"), 0), "id"), "tiny");
    pl_json_close(&j);
    ask_json(&j, &guarded, "/v1/models/tiny", "");
    assert_string_equal(test_str(&j, NULL, "object"), "model");
    pl_json_close(&j);
    ask_json(&j, &plain, "/detokenize", "{\"tokens\": [1, 5460, 730]}");
    assert_true(strlen(test_str(&j, NULL, "prompt")) > 3);
    pl_json_close(&j);
}

// ---- clients that leave, and the end --------------------------------------------------------------------------------

#define LONG "{\"prompt\": \"Once\", \"ignore_eos\": true, \"temperature\": 0%s}"

static void wait_until(const server *s, const char *sample, double value) {
    double until = pl_now() + 30;
    while (metric(s, sample) != value)
        if (pl_now() > until) fail_msg("%s is not %g", sample, value);
}

// The guarded server has one session and seven places in its queue: eight answers fill it.
static void full_queue_and_leaving(void **state) {
    (void)state;
    char   body[256], *head, *text;
    double left = metric(&guarded, "vllm:request_success_total{model_name=\"tiny\",finished_reason=\"abort\"}");
    for (int k = 0; k < 2; k++) {
        snprintf(body, sizeof body, LONG, k ? ", \"n\": 8, \"stream\": true" : ", \"n\": 8");
        int fd = send_request(&guarded, "POST", "/v1/completions", key_of(&guarded), body);
        wait_until(&guarded, "vllm:num_requests_running{", 1);
        assert_int_equal(ask_with(&guarded, "POST", "/v1/completions", key_of(&guarded),
                                  "{\"prompt\": \"a\", \"max_tokens\": 1}", &head, &text),
                         429);
        assert_non_null(strstr(head, "Retry-After: 1"));
        pl_free(head);
        close(fd);
        wait_until(&guarded, "vllm:num_requests_running{", 0);
        assert_true(metric(&guarded, "vllm:num_requests_waiting{") == 0);
    }
    assert_true(metric(&guarded, "vllm:request_success_total{model_name=\"tiny\",finished_reason=\"abort\"}") ==
                left + 2);
}

// A signal: what runs ends, what comes is refused, and the server ends well.
static void ends_gracefully(void **state) {
    (void)state;
    char        body[256], *head, *text;
    test_output o;
    int         status = 200;
    snprintf(body, sizeof body, LONG, ", \"n\": 2, \"max_tokens\": 150");
    int fd = send_request(&guarded, "POST", "/v1/completions", key_of(&guarded), body);
    wait_until(&guarded, "vllm:num_requests_running{", 1);
    kill(guarded.child.pid, SIGTERM);
    for (int i = 0; i < 100 && status == 200; i++) { // until it has seen the signal
        status = ask_with(&guarded, "GET", "/health", "", "", &head, &text);
        pl_free(head);
    }
    assert_int_equal(status, 503);
    assert_int_equal(read_reply(fd, &head, &text), 200);
    assert_non_null(strstr(text, "\"index\":1"));
    pl_free(head);
    test_end(&guarded.child, 30, &o);
    assert_int_equal(o.code, 0);
    test_run_fini(&o);
    for (int i = 0; i < 2; i++) {
        test_child *c = i ? &calling.child : &plain.child;
        kill(c->pid, SIGINT);
        test_end(c, 30, &o);
        assert_int_equal(o.code, 0);
        test_run_fini(&o);
    }
}

static void wrong_usage(void **state) {
    (void)state;
    test_run_fails(2, "--target: is missing", "serve");
    test_run_fails(2, "needs a --drafter", "serve --target checkpoints/tiny --tree chain:3");
    test_run_fails(2, "the target has", "serve --target checkpoints/tiny --max-len 100000");
    test_run_fails(2, "no chat template", "serve --target checkpoints/tiny --chat-kwargs '{}'");
    test_run_fails(1, "cannot listen", "serve --target checkpoints/tiny --host 192.0.2.1 --port 0");
}

static int setup(void **state) {
    (void)state;
    char        options[512], keys[96];
    test_output o;
    test_run(&o, "doctor --json");
    bool built = strstr(o.out, "\"server\":\"libmicrohttpd") != NULL;
    test_run_fini(&o);
    if (!built) {
        printf("no HTTP server in this build: skipped\n");
        exit(77);
    }
    test_scratch(base);
    snprintf(template, sizeof template, "%s/chat.jinja", base);
    snprintf(keys, sizeof keys, "%s/keys", base);
    test_write(template, "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
                         "{% if add_generation_prompt %}assistant:{% endif %}");
    test_write(keys, "sk-test\n");
    chmod(keys, 0600);
    snprintf(options, sizeof options, "--sessions 4 --queue 16 --chat-template %s", template);
    start_server(&plain, options);
    snprintf(options, sizeof options,
             "--sessions 1 --queue 7 --drafter lookup --tree chain:4 --api-key-file %s --cors http://page.example",
             keys);
    start_server(&guarded, options);
    snprintf(keys, sizeof keys, "%s/tools.jinja", base);
    test_write(keys,
               "{% for t in tools or [] %}{{ t.function.name }} in <tool_call>.\n{% endfor %}{% for m in messages %}"
               "{{ m.role }}: {{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>\n{\"name\": "
               "\"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}\n</tool_call>"
               "{% endfor %}{{ '\n' }}{% endfor %}{% if add_generation_prompt %}assistant:{% if think is defined %}"
               "<think>\n{% if not think %}\n</think>\n\n{% endif %}{% endif %}{% endif %}");
    snprintf(options, sizeof options, "--sessions 2 --drafter lookup --tree chain:4 --chat-template %s", keys);
    start_server(&calling, options);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    test_scratch_remove(base);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_those_of_decode),
        cmocka_unit_test(conversations),
        cmocka_unit_test(lists_and_choices),
        cmocka_unit_test(stop_strings),
        cmocka_unit_test(many_at_once),
        cmocka_unit_test(log_probabilities),
        cmocka_unit_test(native_completion),
        cmocka_unit_test(speculation),
        cmocka_unit_test(tool_calls),
        cmocka_unit_test(reasoning),
        cmocka_unit_test(templates_take_tools),
        cmocka_unit_test(errors),
        cmocka_unit_test(heads),
        cmocka_unit_test(lists_models),
        cmocka_unit_test(full_queue_and_leaving),
        cmocka_unit_test(ends_gracefully),
        cmocka_unit_test(wrong_usage),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

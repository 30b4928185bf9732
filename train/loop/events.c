#define _GNU_SOURCE 1 // gethostname, scandir, pread
#include "train/loop/events.h"

#include "kernels/base/arena.h"
#include "kernels/base/clock.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"
#include "kernels/base/proto.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "events.out.tfevents."
#define LIST ".stamps/events" // names of this run's files, one per line
#define LIST_MAX ((size_t)1 << 20)
enum { EVENT_TIME = 1, EVENT_STEP = 2, EVENT_VERSION = 3, EVENT_SUMMARY = 5, EVENT_SESSION = 7 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2, SESSION_STATUS = 1, SESSION_START = 1 };

// ---- records

// Bit by bit, lowest first, by the reflected polynomial: a step has some hundred bytes.
static uint32_t hash_crc32c(const void *data, size_t n) {
    const uint8_t *p = data;
    uint32_t       c = ~0u;
    for (size_t i = 0; i < n; i++) {
        c ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            c = c >> 1 ^ (c & 1 ? 0x82f63b78u : 0);
    }
    return ~c;
}

static uint32_t masked_crc(const void *data, size_t n) {
    uint32_t c = hash_crc32c(data, n);
    return (c >> 15 | c << 17) + 0xa282ead8u;
}

// Appends the event as a record to b, and empties it.
static void put_record(pl_strbuf *b, pl_strbuf *event) {
    b->failed = b->failed || event->failed;
    if (b->failed) return;
    size_t at = b->n;
    pl_proto_fixed(b, event->n, 8);
    if (!b->failed) pl_proto_fixed(b, masked_crc(b->s + at, 8), 4);
    pl_strbuf_add(b, event->s, event->n);
    pl_proto_fixed(b, masked_crc(event->s, event->n), 4);
    event->n = 0;
}

// ---- events

static void begin_event(pl_strbuf *event, double when, int64_t step) {
    pl_proto_double(event, EVENT_TIME, when);
    pl_proto_number(event, EVENT_STEP, (uint64_t)step);
}

// Writes the two records at the start of a file.
static void put_head(pl_strbuf *b, double when) {
    static const char version[] = "brain.Event:2";
    pl_strbuf         event = {0}, session = {0};
    begin_event(&event, when, 0);
    pl_proto_bytes(&event, EVENT_VERSION, version, sizeof version - 1);
    put_record(b, &event);
    begin_event(&event, when, 0);
    pl_proto_number(&session, SESSION_STATUS, SESSION_START);
    pl_proto_message(&event, EVENT_SESSION, &session);
    put_record(b, &event);
    pl_strbuf_fini(&event);
    pl_strbuf_fini(&session);
}

// Writes the tag of a metrics key: a fixed name, or one by its prefix.
static void tag_of(char *out, size_t room, const char *key) {
    static const struct {
        const char *key, *tag;
        bool        whole;
    } names[] = {{"lr", "train/learning_rate", true}, {"alarm", "eval/alarm", true},       {"eval_", "eval/", false},
                 {"served_", "served/", false},       {"documents_", "documents/", false}, {"", "train/", false}};
    size_t i = 0, n;
    while (n = strlen(names[i].key), names[i].whole ? strcmp(key, names[i].key) : strncmp(key, names[i].key, n))
        i++;
    snprintf(out, room, "%s%s", names[i].tag, key + n);
}

static void put_value(pl_strbuf *summary, const char *key, int index, double v) {
    pl_strbuf value = {0};
    char      tag[160];
    tag_of(tag, sizeof tag, key);
    if (index > 0) snprintf(tag + strlen(tag), sizeof tag - strlen(tag), "/%d", index);
    pl_proto_bytes(&value, VALUE_TAG, tag, strlen(tag));
    pl_proto_float(&value, VALUE_SIMPLE, (float)v);
    pl_proto_message(summary, SUMMARY_VALUE, &value);
    pl_strbuf_fini(&value);
}

// Writes numbers alone; null, which stands for an unknown value, is skipped.
static void put_item(pl_strbuf *summary, const cJSON *item) {
    const cJSON *x;
    int          index = 1;
    if (strcmp(item->string, "step") == 0 || strcmp(item->string, "time") == 0) return;
    if (cJSON_IsNumber(item)) put_value(summary, item->string, 0, item->valuedouble);
    if (!cJSON_IsArray(item)) return;
    cJSON_ArrayForEach(x, item) {
        if (cJSON_IsNumber(x)) put_value(summary, item->string, index, x->valuedouble);
        index++;
    }
}

// Writes the record of a line. Lines of older runs have no time.
static pl_status put_line(pl_strbuf *b, const char *path, const char *line, size_t n, double now, pl_err *err) {
    pl_json      j;
    const cJSON *item;
    double       when;
    int64_t      step;
    pl_strbuf    event = {0}, summary = {0};
    PL_TRY(pl_json_parse(&j, path, 1, line, n, 0, err));
    pl_status st = pl_json_get_int(&j, NULL, "step", 0, PL_JSON_INT_MAX, &step, err);
    if (st == PL_OK) st = pl_json_opt_num(&j, NULL, "time", 0, 1e12, now, &when, err);
    if (st == PL_OK) {
        begin_event(&event, when, step);
        cJSON_ArrayForEach(item, j.root) put_item(&summary, item);
        pl_proto_message(&event, EVENT_SUMMARY, &summary);
        put_record(b, &event);
        pl_strbuf_fini(&event);
        pl_strbuf_fini(&summary);
    }
    pl_json_close(&j);
    return st;
}

// ---- files

static int is_events(const struct dirent *d) {
    return strncmp(d->d_name, PREFIX, sizeof PREFIX - 1) == 0;
}

// TensorBoard reads a folder's files in order of their names, and does not return to one that it has read to its end: a
// new name sorts after all others.
static char *new_path(const char *dir, struct dirent **names, int n, double now) {
    char      host[256] = "";
    long long seconds = (long long)now;
    for (int i = 0; i < n; i++) {
        long long theirs = strtoll(names[i]->d_name + sizeof PREFIX - 1, NULL, 10);
        if (theirs >= seconds && theirs < 9999999999) seconds = theirs + 1;
    }
    if (gethostname(host, sizeof host - 1) != 0 || !*host) snprintf(host, sizeof host, "localhost");
    for (char *c = host; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '-' && *c != '.') *c = '-';
    return pl_sprintf("%s/" PREFIX "%010lld.%s.%ld", dir, seconds, host, (long)getpid());
}

static pl_status write_file(const char *path, const char *dir, const char *lines, size_t n, double now, pl_err *err) {
    pl_strbuf b = {0};
    pl_status st = PL_OK;
    put_head(&b, now);
    for (const char *end, *at = lines; st == PL_OK && (end = memchr(at, '\n', n - (size_t)(at - lines))); at = end + 1)
        st = put_line(&b, dir, at, (size_t)(end - at), now, err);
    if (st == PL_OK && b.failed) st = pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    if (st == PL_OK) st = pl_file_write_atomic(path, b.s, b.n, err);
    pl_strbuf_fini(&b);
    return st;
}

// ---- earlier files

// *text: the list, on the heap; NULL: there is none, as in older builds.
static pl_status read_list(char **text, const char *path, pl_err *err) {
    uint8_t *data;
    size_t   n;
    *text = NULL;
    if (!pl_path_exists(path)) return PL_OK;
    PL_TRY(pl_file_read(path, &data, &n, LIST_MAX, err));
    *text = (char *)data;
    return PL_OK;
}

static bool is_in_list(const char *text, const char *name) {
    size_t n = strlen(name);
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (strcspn(line, "\n") == n && memcmp(line, name, n) == 0) return true;
    return false;
}

// Returns true for SECONDS.HOST.PID, as new_path writes it: other writers add or omit parts.
static bool has_our_form(const char *name) {
    const char *seconds = name + sizeof PREFIX - 1, *pid = strrchr(seconds, '.');
    return strspn(seconds, "0123456789") == 10 && seconds[10] == '.' && pid && pid > seconds + 11 && pid[1] &&
           strspn(pid + 1, "0123456789") == strlen(pid + 1);
}

// Returns true if the file begins with the two records of put_head, whatever their time.
static bool has_our_head(int fd) {
    enum { TIME_AT = 8 + 4 + 1 }; // offset of the first record's time field
    char      front[256];
    double    when;
    pl_strbuf head = {0};
    ssize_t   n = pread(fd, front, sizeof front, 0);
    if (n < TIME_AT + (ssize_t)sizeof when) return false;
    memcpy(&when, front + TIME_AT, sizeof when);
    put_head(&head, when);
    bool same = !head.failed && head.n <= (size_t)n && memcmp(front, head.s, head.n) == 0;
    pl_strbuf_fini(&head);
    return same;
}

// Returns true if this run wrote the file. list NULL: decides by the form of its name and its first records.
static bool is_own(const char *dir, const char *name, const char *list) {
    int         fd = -1;
    struct stat s;
    char       *path = pl_path_join(dir, name);
    bool        own = path && (list ? is_in_list(list, name) : has_our_form(name)) &&
               pl_file_open(path, O_RDONLY, &fd, NULL) == PL_OK;
    if (own) own = has_our_head(fd) || (list && fstat(fd, &s) == 0 && s.st_size == 0);
    if (fd >= 0) close(fd);
    pl_free(path);
    return own;
}

// Removes foreign files from the array; returns the number that is left.
static int keep_own(const char *dir, struct dirent **names, int n, const char *list) {
    int kept = 0;
    for (int i = 0; i < n; i++) {
        if (is_own(dir, names[i]->d_name, list))
            names[kept++] = names[i];
        else
            free(names[i]); // allocated by scandir
    }
    return kept;
}

// Empties an earlier file, whose records are in the new one.
static pl_status empty_file(const char *dir, const char *name, pl_err *err) {
    struct stat s;
    int         fd = -1;
    char       *path = pl_path_join(dir, name);
    pl_status   st = path ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    if (st == PL_OK) st = pl_file_open(path, O_WRONLY, &fd, err);
    if (st == PL_OK && fstat(fd, &s) == 0 && s.st_size == 0)
        st = pl_tree_remove(path, err);
    else if (st == PL_OK && ftruncate(fd, 0) != 0)
        st = pl_fail_errno(err, "%s: emptying", path);
    if (fd >= 0) close(fd);
    pl_free(path);
    return st;
}

static void add_line(pl_strbuf *b, const char *name) {
    pl_strbuf_add(b, name, strlen(name));
    pl_strbuf_add(b, "\n", 1);
}

// Lists this run's existing files, and the fresh one.
static pl_status write_list(const char *dir, const char *path, struct dirent **names, int n, const char *fresh,
                            pl_err *err) {
    pl_strbuf b = {0};
    char     *folder = pl_path_join(dir, ".stamps");
    pl_status st = folder ? pl_dir_make(folder, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    for (int i = 0; i < n; i++)
        add_line(&b, names[i]->d_name);
    add_line(&b, fresh);
    if (st == PL_OK && b.failed) st = pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    if (st == PL_OK) st = pl_file_write_atomic(path, b.s, b.n, err);
    pl_strbuf_fini(&b);
    pl_free(folder);
    return st;
}

// The list is written before the file, so that an existing file is always listed, whenever the process ends.
pl_status pl_events_open(pl_events *e, const char *dir, const char *lines, size_t n, pl_err *err) {
    struct dirent **names = NULL;
    double          now = pl_unix_time();
    int             older = scandir(dir, &names, is_events, NULL); // -1: the folder cannot be read
    char           *listed = NULL, *path = pl_path_join(dir, LIST);
    *e = (pl_events){.fd = -1, .path = new_path(dir, names, older, now)};
    pl_status st = e->path && path ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    if (st == PL_OK) st = read_list(&listed, path, err);
    if (st == PL_OK) older = keep_own(dir, names, older, listed);
    if (st == PL_OK) st = write_list(dir, path, names, older, pl_path_name(e->path), err);
    if (st == PL_OK) st = write_file(e->path, dir, lines, n, now, err);
    if (st == PL_OK) st = pl_file_open(e->path, O_WRONLY | O_APPEND, &e->fd, err);
    for (int i = 0; i < older && st == PL_OK; i++)
        st = empty_file(dir, names[i]->d_name, err);
    for (int i = 0; i < older; i++)
        free(names[i]); // allocated by scandir
    free(names);
    pl_free(listed);
    pl_free(path);
    if (st != PL_OK) pl_events_close(e);
    return st;
}

void pl_events_close(pl_events *e) {
    if (e->path && e->fd >= 0) close(e->fd);
    pl_free(e->path);
    *e = (pl_events){.fd = -1};
}

pl_status pl_events_add(pl_events *e, const char *line, size_t n, pl_err *err) {
    pl_strbuf b = {0};
    pl_status st = put_line(&b, e->path, line, n, pl_unix_time(), err);
    if (st == PL_OK && b.failed) st = pl_fail(err, PL_E_MEMORY, "%s: out of memory", e->path);
    if (st == PL_OK) st = pl_fd_write(e->fd, e->path, b.s, b.n, err);
    pl_strbuf_fini(&b);
    return st;
}

#include "program.h"

#include "kernels/base/arena.h"
#include "kernels/base/clock.h"
#include "kernels/base/files.h"

#include <ctype.h>
#include <float.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>

#include <cmocka.h>

#define MAX_ARGS 64

static char *slurp(FILE *f, size_t *n) {
    char  *text = NULL;
    size_t room = 0;
    *n = 0;
    rewind(f);
    for (;;) {
        if (*n + 4096 > room) {
            room = 2 * room + 8192;
            text = realloc(text, room);
            assert_non_null(text);
        }
        size_t got = fread(text + *n, 1, 4095, f);
        *n += got;
        if (got == 0) break;
    }
    text[*n] = 0;
    fclose(f);
    return text;
}

static int split(char *line, char *argv[MAX_ARGS]) {
    bool elsewhere = strstr(line, "--device") != NULL;
    int  n = 1;
    argv[0] = (char *)(uintptr_t)(strstr(line, "--device emulated") ? PACELINE_EMULATED : PACELINE_PROGRAM);
    if (!elsewhere) {
        argv[n++] = (char *)(uintptr_t) "--device";
        argv[n++] = (char *)(uintptr_t) "cpu";
    }
    for (char *s = line; *s;) {
        while (*s == ' ')
            s++;
        if (!*s) break;
        assert_true(n < MAX_ARGS - 1);
        char end = *s == '\'' ? '\'' : ' ';
        if (end == '\'') s++;
        argv[n++] = s;
        while (*s && *s != end)
            s++;
        if (*s) *s++ = 0;
    }
    argv[n] = NULL;
    return n;
}

static void start(test_child *c, void (*before)(const void *), const void *arg, const char *args, va_list ap) {
    char line[8192], *argv[MAX_ARGS];
    c->out = tmpfile();
    c->err = tmpfile();
    assert_true(vsnprintf(line, sizeof line, args, ap) < (int)sizeof line);
    assert_non_null(c->out);
    assert_non_null(c->err);
    split(line, argv);
    fflush(NULL);
    c->pid = fork();
    assert_true(c->pid >= 0);
    if (c->pid > 0) return;
    dup2(fileno(c->out), STDOUT_FILENO);
    dup2(fileno(c->err), STDERR_FILENO);
    if (before) before(arg);
    execv(argv[0], argv);
    _exit(127);
}

static void end(test_child *c, int status, test_output *o) {
    o->code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    o->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    o->out = slurp(c->out, &o->out_bytes);
    o->err = slurp(c->err, &o->err_bytes);
}

void test_start(test_child *c, void (*before)(const void *), const void *arg, const char *args, ...) {
    va_list ap;
    va_start(ap, args);
    start(c, before, arg, args, ap);
    va_end(ap);
}

void test_end(test_child *c, double seconds, test_output *o) {
    int    status;
    pid_t  got;
    double until = pl_now() + seconds;
    while ((got = waitpid(c->pid, &status, WNOHANG)) == 0 && pl_now() < until)
        usleep(2000);
    if (got == 0) {
        kill(c->pid, SIGKILL);
        waitpid(c->pid, &status, 0);
    }
    end(c, status, o);
    if (got != c->pid) fail_msg("it still ran after %g s: %s", seconds, o->err);
}

static void run(test_output *o, const char *args, va_list ap) {
    test_child c;
    int        status;
    start(&c, NULL, NULL, args, ap);
    assert_int_equal(waitpid(c.pid, &status, 0), c.pid);
    end(&c, status, o);
}

void test_run(test_output *o, const char *args, ...) {
    va_list ap;
    va_start(ap, args);
    run(o, args, ap);
    va_end(ap);
}

void test_run_fini(test_output *o) {
    free(o->out);
    free(o->err);
}

void test_run_json(pl_json *j, const char *args, ...) {
    test_output o;
    pl_err      err;
    va_list     ap;
    va_start(ap, args);
    run(&o, args, ap);
    va_end(ap);
    if (o.code != 0) fail_msg("%s: exit code %d: %s", args, o.code, o.err);
    if (pl_json_parse(j, "stdout", 0, o.out, o.out_bytes, PL_JSON_UNIQUE, &err) != PL_OK)
        fail_msg("%s: %s\n%s", args, err.msg, o.out);
    test_run_fini(&o);
}

void test_run_fails(int code, const char *part, const char *args, ...) {
    test_output o;
    va_list     ap;
    va_start(ap, args);
    run(&o, args, ap);
    va_end(ap);
    if (o.code != code) fail_msg("%s: exit code %d instead of %d: %s", args, o.code, code, o.err);
    if (o.out_bytes) fail_msg("%s: on an error standard output is empty, but: %s", args, o.out);
    char *end = strchr(o.err, '\n');
    if (strncmp(o.err, "paceline: ", 10) != 0 || !end || end[1])
        fail_msg("%s: an error is one line \"paceline: ...\", but: %s", args, o.err);
    if (!strstr(o.err, part)) fail_msg("%s: \"%s\" expected in: %s", args, part, o.err);
    test_run_fini(&o);
}

const char *test_data(char buf[512], const char *name) {
    const char *root = getenv("PACELINE_TEST_DATA");
    if (!root || !*root) {
        skip();
        return NULL;
    }
    snprintf(buf, 512, "%s/%s", root, name);
    return buf;
}

const char *test_scratch(char buf[64]) {
    const char *root = getenv("TMPDIR");
    snprintf(buf, 64, "%.40s/paceline-XXXXXX", root && *root ? root : "/tmp");
    assert_non_null(mkdtemp(buf));
    return buf;
}

void test_scratch_remove(const char *dir) {
    assert_int_equal(pl_tree_remove(dir, NULL), PL_OK);
}

void test_write(const char *path, const char *text) {
    pl_err err;
    if (pl_file_write_atomic(path, text, strlen(text), &err) != PL_OK) fail_msg("%s", err.msg);
}

char *test_read(const char *path) {
    uint8_t *data;
    size_t   n;
    pl_err   err;
    if (pl_file_read(path, &data, &n, 1 << 26, &err) != PL_OK) fail_msg("%s", err.msg);
    return (char *)data;
}

// Every tag is closed in its turn, as an XML parser demands (of the void ones the page has only meta), and every & begins
// an entity.
static void assert_nested(const char *html) {
    char open[64][16], name[16];
    int  n = 0;
    for (const char *s = html; (s = strpbrk(s, "<&")) != NULL; s++) {
        if (*s == '&') {
            if (strncmp(s, "&amp;", 5) && strncmp(s, "&lt;", 4) && strncmp(s, "&gt;", 4) && strncmp(s, "&quot;", 6))
                fail_msg("no entity: %.40s", s);
        } else if (sscanf(s, "</%15[a-z0-9]>", name) == 1) {
            if (n == 0 || strcmp(open[n - 1], name) != 0) fail_msg("closes %s: %.80s", n ? open[n - 1] : "", s);
            n--;
        } else if (sscanf(s, "<%15[a-z0-9]", name) == 1) {
            const char *end = strchr(s, '>');
            assert_non_null(end);
            if (end[-1] == '/' || strcmp(name, "meta") == 0) continue;
            assert_true(n < 64);
            strcpy(open[n++], name);
        } else if (strncmp(s, "<!doctype", 9) != 0) {
            fail_msg("no tag: %.40s", s);
        }
    }
    assert_int_equal(n, 0);
}

char *test_read_page(const char *path) {
    char *html = test_read(path), *to = html;
    assert_nested(html);
    for (const char *s = html; *s; s++)
        if (!isspace((unsigned char)*s))
            *to++ = *s;
        else if (to > html && to[-1] != ' ' && to[-1] != '>')
            *to++ = ' ';
    *to = 0;
    return html;
}

void test_put(const char *dir, const char *name, const char *text) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    test_write(path, text);
}

char *test_get(const char *dir, const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return test_read(path);
}

double test_num(const pl_json *j, const cJSON *obj, const char *key) {
    double x = 0;
    pl_err err;
    if (pl_json_get_num(j, obj, key, -DBL_MAX, DBL_MAX, &x, &err) != PL_OK) fail_msg("%s", err.msg);
    return x;
}

const char *test_str(const pl_json *j, const cJSON *obj, const char *key) {
    const char *s = NULL;
    pl_err      err;
    if (pl_json_get_str(j, obj, key, &s, &err) != PL_OK) fail_msg("%s", err.msg);
    return s;
}

const cJSON *test_array(const pl_json *j, const cJSON *obj, const char *key) {
    const cJSON *a = NULL;
    pl_err       err;
    if (pl_json_get_array(j, obj, key, &a, &err) != PL_OK) fail_msg("%s", err.msg);
    return a;
}

int test_ids(const pl_json *j, const char *key, int32_t *out, int most) {
    const cJSON *list, *v;
    int          n = 0;
    assert_int_equal(pl_json_get_array(j, NULL, key, &list, NULL), PL_OK);
    cJSON_ArrayForEach(v, list) {
        int64_t id;
        assert_int_equal(pl_json_int_of(j, v, 0, INT32_MAX, &id, NULL), PL_OK);
        assert_true(n < most);
        out[n++] = (int32_t)id;
    }
    return n;
}

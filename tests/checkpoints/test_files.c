#define _GNU_SOURCE 1 // fork, kill, symlink
#include "scratch.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

// ---- paths and whole files ----

static void test_paths(void **state) {
    (void)state;
    static const char *const cases[][3] = {
        {"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"", "b", "b"}, {NULL, "b", "b"}, {"/", "b", "/b"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *p = pl_path_join(cases[i][0], cases[i][1]);
        assert_string_equal(p, cases[i][2]);
        pl_free(p);
    }
    assert_string_equal(pl_path_name("a/b/c"), "c");
    assert_string_equal(pl_path_name("c"), "c");
    assert_string_equal(pl_path_name("c/"), "");
    assert_true(pl_path_is_dir(scratch));
    assert_false(pl_path_exists(at("nothing")));
}

static void test_dir_make(void **state) {
    (void)state;
    pl_err err;
    assert_ok(pl_dir_make(at("d1/d2/d3"), &err));
    assert_ok(pl_dir_make(at("d1/d2/d3/"), &err));
    assert_true(pl_path_is_dir(at("d1/d2/d3")));
    put_text(at("d1/file"), "x");
    assert_says(pl_dir_make(at("d1/file/d2"), &err), PL_E_INPUT, &err, "d1/file: cannot make the folder");
    assert_says(pl_dir_make("", &err), PL_E_INPUT, &err, "empty");
    pl_io_fail_after(1);
    assert_says(pl_dir_make(at("d4"), &err), PL_E_IO, &err, "Input/output error");
    assert_ok(pl_tree_remove(at("d1"), &err));
    assert_false(pl_path_exists(at("d1")));
    assert_ok(pl_tree_remove(at("d1"), &err));
}

static void test_tree_remove_keeps_link_targets(void **state) {
    (void)state;
    pl_err err;
    assert_ok(pl_dir_make(at("kept"), &err));
    put_text(at("kept/file"), "x");
    assert_ok(pl_dir_make(at("gone"), &err));
    assert_int_equal(symlink(at("kept"), at("gone/link")), 0);
    assert_ok(pl_tree_remove(at("gone"), &err));
    assert_true(pl_path_exists(at("kept/file")));
}

static bool no_locks; // of the file system

// Our objects' calls come here by the linker (--wrap, in CMakeLists.txt).
int __real_flock(int fd, int how);
int __wrap_flock(int fd, int how);
int __wrap_flock(int fd, int how) {
    if (!no_locks) return __real_flock(fd, how);
    errno = ENOLCK;
    return -1;
}

static void test_dir_lock(void **state) {
    (void)state;
    pl_err err = {0};
    int    first, second;
    assert_int_equal(pl_dir_lock(scratch, &first, &err), PL_OK);
    assert_int_equal(pl_dir_lock(scratch, &second, &err), PL_E_INPUT);
    assert_int_equal(second, -1);
    assert_non_null(strstr(err.msg, "another run is at work"));
    pl_dir_unlock(first);
    assert_int_equal(pl_dir_lock(scratch, &second, &err), PL_OK);
    no_locks = true;
    pl_status st = pl_dir_lock(scratch, &first, &err);
    no_locks = false;
    assert_int_equal(st, PL_OK);
    pl_dir_unlock(first);
    pl_dir_unlock(second);
    assert_int_equal(pl_dir_lock("/nonexistent/folder", &second, &err), PL_E_IO);
}

static void test_read(void **state) {
    (void)state;
    pl_err   err;
    uint8_t *data;
    size_t   n;
    put_text(at("r"), "hello");
    assert_ok(pl_file_read(at("r"), &data, &n, 5, &err));
    assert_int_equal(n, 5);
    assert_string_equal((char *)data, "hello");
    pl_free(data);
    assert_says(pl_file_read(at("r"), &data, &n, 4, &err), PL_E_INPUT, &err, "larger than 4 bytes");
    assert_null(data);
    assert_says(pl_file_read(at("absent"), &data, &n, 4, &err), PL_E_INPUT, &err, "No such file");
    assert_says(pl_file_read(scratch, &data, &n, 4, &err), PL_E_INPUT, &err, "Is a directory");
    put_text(at("empty"), "");
    assert_ok(pl_file_read(at("empty"), &data, &n, 4, &err));
    assert_int_equal(n, 0);
    pl_free(data);
    // A pipe does not say how long it is, and is read only where one is meant.
    enum { LONG = 50000 };
    int fd[2];
    assert_int_equal(pipe(fd), 0);
    char *big = malloc(LONG), name[32];
    memset(big, 'x', LONG);
    assert_int_equal(write(fd[1], big, LONG), LONG);
    close(fd[1]);
    snprintf(name, sizeof name, "/dev/fd/%d", fd[0]);
    assert_says(pl_file_read(name, &data, &n, 1 << 20, &err), PL_E_INPUT, &err, "not a regular file");
    assert_ok(pl_stream_read(name, &data, &n, 1 << 20, &err));
    assert_int_equal(n, LONG);
    assert_memory_equal(data, big, LONG);
    pl_free(data);
    free(big);
    close(fd[0]);
}

static void test_read_memory(void **state) {
    (void)state;
    pl_err   err;
    uint8_t *data;
    size_t   n;
    put_text(at("m"), "hello");
    pl_alloc_fail_after(1);
    assert_says(pl_file_read(at("m"), &data, &n, 100, &err), PL_E_MEMORY, &err, "out of memory");
    assert_null(data);
}

static void test_map(void **state) {
    (void)state;
    pl_err err;
    pl_map m;
    put_text(at("mapped"), "hello");
    assert_ok(pl_map_open(&m, at("mapped"), &err));
    assert_int_equal(m.size, 5);
    assert_memory_equal(m.data, "hello", 5);
    pl_map_drop(m.data + 1, 3);
    assert_memory_equal(m.data, "hello", 5);
    pl_map_close(&m);
    assert_null(m.data);
    put_text(at("mapped"), "");
    assert_ok(pl_map_open(&m, at("mapped"), &err));
    assert_null(m.data);
    pl_map_close(&m);
    assert_says(pl_map_open(&m, scratch, &err), PL_E_INPUT, &err, "not a regular file");
    assert_int_equal(mkfifo(at("fifo"), 0600), 0);
    assert_says(pl_map_open(&m, at("fifo"), &err), PL_E_INPUT, &err, "not a regular file");
    uint8_t *data;
    size_t   n;
    assert_says(pl_file_read(at("fifo"), &data, &n, 9, &err), PL_E_INPUT, &err, "not a regular file");
    assert_says(pl_file_read("/dev/zero", &data, &n, 9, &err), PL_E_INPUT, &err, "not a regular file");
    assert_true(pl_path_is_special(at("fifo")) && pl_path_is_special("/dev/zero"));
    assert_false(pl_path_is_special(at("mapped")) || pl_path_is_special(scratch) || pl_path_is_special(at("absent")));
    assert_says(pl_map_open(&m, at("absent"), &err), PL_E_INPUT, &err, "absent: cannot open");
}

// ---- a mapping that loses its file

static int entries(const char *dir);

enum { MAPPED = 1 << 16 };

// A read behind the end of a file that is cut, with products of both kinds begun; outside mappings SIGBUS ends the
// process as ever.
static void lose_mapping(bool ours) {
    pl_atomic_file file;
    pl_atomic_dir  dir;
    pl_map         whole, cut;
    pl_map_guard();
    if (pl_map_open(&whole, at("whole"), NULL) != PL_OK || pl_map_open(&cut, at("cut"), NULL) != PL_OK) _exit(10);
    if (pl_atomic_file_begin(&file, at("begun"), NULL) != PL_OK) _exit(11);
    if (pl_atomic_dir_begin(&dir, at("begun-dir"), NULL) != PL_OK) _exit(12);
    if (truncate(at("cut"), 100) != 0) _exit(13);
    int                     fd = open(at("cut"), O_RDONLY);
    const volatile uint8_t *foreign = mmap(NULL, MAPPED, PROT_READ, MAP_PRIVATE, fd, 0);
    if (whole.data[MAPPED - 1] != 'x' || cut.data[50] != 'x') _exit(14);
    (void)*(const volatile uint8_t *)(ours ? cut.data + MAPPED - 1 : foreign + MAPPED - 1);
    _exit(15);
}

static void test_map_cut(void **state) {
    (void)state;
    static const char *const begun[] = {"begun", "begun-dir/", NULL};
    pl_err                   err;
    char                    *text = malloc(MAPPED);
    memset(text, 'x', MAPPED);
    for (int ours = 0; ours < 2; ours++) {
        char said[512] = "", says[256];
        int  ends[2], status;
        assert_ok(pl_file_write_atomic(at("whole"), text, MAPPED, &err));
        assert_ok(pl_file_write_atomic(at("cut"), text, MAPPED, &err));
        assert_int_equal(pipe(ends), 0);
        int   before = entries(scratch);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            signal(SIGBUS, SIG_DFL); // cmocka's own stays with the parent
            dup2(ends[1], STDERR_FILENO);
            lose_mapping(ours);
        }
        close(ends[1]);
        // The handler writes its line in pieces.
        size_t  n = 0;
        ssize_t got;
        while ((got = read(ends[0], said + n, sizeof said - 1 - n)) > 0) n += (size_t)got;
        assert_int_equal(got, 0);
        close(ends[0]);
        assert_int_equal(waitpid(child, &status, 0), child);
        if (ours) {
            assert_true(WIFEXITED(status));
            assert_int_equal(WEXITSTATUS(status), 1);
            snprintf(says, sizeof says, "paceline: %s: cannot read: it became shorter", at("cut"));
            assert_int_equal(strncmp(said, says, strlen(says)), 0);
            assert_int_equal(entries(scratch), before);
        } else {
            assert_true(WIFSIGNALED(status));
            assert_int_equal(WTERMSIG(status), SIGBUS);
            pl_dir_sweep(scratch, begun);
        }
    }
    free(text);
}

static void assert_content(const char *path, const char *text) {
    pl_err   err;
    uint8_t *data;
    size_t   n;
    assert_ok(pl_file_read(path, &data, &n, 1 << 20, &err));
    assert_string_equal((char *)data, text);
    pl_free(data);
}

// Entries of a folder besides "." and "..".
static int entries(const char *dir) {
    int  n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

// ---- atomic files ----

static void test_atomic_file(void **state) {
    (void)state;
    pl_err         err;
    pl_atomic_file a;
    assert_ok(pl_dir_make(at("af"), &err));
    assert_ok(pl_file_write_atomic(at("af/x"), "one", 3, &err));
    assert_content(at("af/x"), "one");
    assert_ok(pl_atomic_file_begin(&a, at("af/x"), &err));
    assert_ok(pl_atomic_file_append(&a, "tw", 2, &err));
    assert_content(at("af/x"), "one");
    // The same product twice at once is refused, and the refusal harms neither.
    pl_atomic_file b;
    assert_says(pl_atomic_file_begin(&b, at("af/x"), &err), PL_E_IO, &err, "another process is writing it");
    pl_atomic_file_abort(&b);
    assert_ok(pl_atomic_file_append(&a, "o", 1, &err));
    assert_ok(pl_atomic_file_commit(&a, &err));
    assert_content(at("af/x"), "two");
    pl_atomic_file_abort(&a); // nothing
    assert_ok(pl_atomic_file_begin(&a, at("af/x"), &err));
    pl_atomic_file_abort(&a);
    assert_content(at("af/x"), "two");
    assert_int_equal(entries(at("af")), 1);
    assert_says(pl_atomic_file_begin(&a, scratch, &err), PL_E_INPUT, &err, "not a regular file");
    assert_says(pl_atomic_file_begin(&a, "/dev/null", &err), PL_E_INPUT, &err, "not a regular file");
    assert_says(pl_atomic_file_begin(&a, "/", &err), PL_E_INPUT, &err, "not a name");
    assert_says(pl_atomic_file_begin(&a, "", &err), PL_E_INPUT, &err, "not a name");
    assert_says(pl_atomic_file_begin(&a, at("absent/x"), &err), PL_E_INPUT, &err, "cannot create");
}

// What a link leads to is not written, whether it is there or not, and neither is a pipe.
static void test_links_are_refused(void **state) {
    (void)state;
    static const char *const names[] = {"al/link", "al/nowhere"};
    pl_err                   err;
    int                      fd;
    assert_ok(pl_dir_make(at("al"), &err));
    put_text(at("al/real"), "old");
    assert_int_equal(symlink("real", at("al/link")), 0);
    assert_int_equal(symlink("missing", at("al/nowhere")), 0);
    assert_int_equal(mkfifo(at("al/pipe"), 0600), 0);
    for (int i = 0; i < 2; i++) {
        assert_says(pl_file_write_atomic(at(names[i]), "new", 3, &err), PL_E_INPUT, &err, "is a link");
        assert_says(pl_file_open(at(names[i]), O_WRONLY | O_CREAT | O_TRUNC, &fd, &err), PL_E_INPUT, &err, "is a link");
        assert_int_equal(fd, -1);
        assert_says(pl_file_spares(at(names[i]), NULL, "--out", &err), PL_E_INPUT, &err, "is a link");
        assert_says(pl_file_look(at(names[i]), &err), PL_E_INPUT, &err, "is a link");
    }
    assert_says(pl_file_open(at("al/pipe"), O_RDWR, &fd, &err), PL_E_INPUT, &err, "not a regular file");
    assert_says(pl_file_spares(at("al/pipe"), NULL, "--out", &err), PL_E_INPUT, &err, "not a regular file");
    assert_says(pl_file_spares(at("al"), NULL, "--out", &err), PL_E_INPUT, &err, "not a regular file");
    assert_ok(pl_dir_make(at("al/locked"), &err));
    assert_int_equal(symlink("../missing", at("al/locked/.lock")), 0);
    assert_says(pl_dir_lock(at("al/locked"), &fd, &err), PL_E_INPUT, &err, "is a link");
    assert_content(at("al/real"), "old");
    assert_false(pl_path_exists(at("al/missing")));
    assert_ok(pl_file_open(at("al/real"), O_WRONLY | O_APPEND, &fd, &err));
    assert_ok(pl_fd_write(fd, "real", "er", 2, &err));
    close(fd);
    assert_content(at("al/real"), "older");
}

static bool begins_with_ours(const char *front, size_t n) {
    return n >= 4 && memcmp(front, "ours", 4) == 0;
}

static void test_file_spares(void **state) {
    (void)state;
    pl_err err;
    assert_ok(pl_dir_make(at("fs"), &err));
    put_text(at("fs/empty"), "");
    put_text(at("fs/ours"), "ours and more");
    put_text(at("fs/theirs"), "their own");
    assert_ok(pl_file_spares(at("fs/none"), begins_with_ours, "--out", &err));
    assert_ok(pl_file_spares(at("fs/none/below"), begins_with_ours, "--out", &err));
    assert_ok(pl_file_spares(at("fs/empty"), NULL, "--out", &err));
    assert_ok(pl_file_spares(at("fs/ours"), begins_with_ours, "--out", &err));
    assert_says(pl_file_spares(at("fs/ours"), NULL, "--list", &err), PL_E_INPUT, &err, "would be lost");
    assert_non_null(strstr(err.msg, "--list"));
    assert_says(pl_file_spares(at("fs/theirs"), begins_with_ours, "--out", &err), PL_E_INPUT, &err, "would be lost");
    char *large = malloc(2 * PL_FRONT);
    memset(large, 'x', 2 * PL_FRONT);
    memcpy(large, "ours", 4);
    assert_ok(pl_file_write_atomic(at("fs/large"), large, 2 * PL_FRONT, &err));
    assert_ok(pl_file_spares(at("fs/large"), begins_with_ours, "--out", &err));
    free(large);
}

// A folder that holds what is listed alone may go, also behind a link, which stays; one entry of another kind keeps it.
static void test_dir_spares(void **state) {
    (void)state;
    static const char *const ours[] = {"a*.h5", "sub/", "mark", "odd[1]", NULL};
    static const struct {
        const char *name;
        bool        dir, ours;
    } entries_of[] = {{"a1.h5", false, true},          {"mark", false, true},          {"sub", true, true},
                      {"odd[1]", false, true},         {".a1.h5.tmp-12", false, true}, {".sub.old-12", true, true},
                      {"b.h5", false, false},          {"sub", false, false},          {"a1.h5", true, false},
                      {".notes.tmp-12", false, false}, {".hidden", false, false}};
    pl_err      err;
    struct stat s;
    assert_ok(pl_dir_spares(at("ds"), NULL, ours, &err));
    for (size_t i = 0; i < sizeof entries_of / sizeof *entries_of; i++) {
        char path[600];
        assert_ok(pl_dir_make(at("ds"), &err));
        snprintf(path, sizeof path, "%s/%s", at("ds"), entries_of[i].name);
        if (entries_of[i].dir)
            assert_ok(pl_dir_make(path, &err));
        else
            put_text(path, "x");
        if (entries_of[i].ours) {
            assert_ok(pl_dir_spares(at("ds"), NULL, ours, &err));
            assert_ok(pl_dir_drop(at("ds"), NULL, ours, &err));
            assert_false(pl_path_exists(at("ds")));
        } else {
            assert_says(pl_dir_spares(at("ds"), NULL, ours, &err), PL_E_INPUT, &err, "which would be lost");
            assert_non_null(strstr(err.msg, entries_of[i].name));
            assert_says(pl_dir_drop(at("ds"), NULL, ours, &err), PL_E_INPUT, &err, "which would be lost");
            assert_true(pl_path_exists(path));
            assert_ok(pl_tree_remove(at("ds"), &err));
        }
    }
    assert_ok(pl_dir_make(at("dsreal"), &err));
    put_text(at("dsreal/a1.h5"), "x");
    assert_says(pl_dir_spares(at("dsreal"), "mark", ours, &err), PL_E_INPUT, &err, "holds a1.h5");
    assert_int_equal(symlink("elsewhere", at("dsreal/mark")), 0);
    assert_says(pl_dir_spares(at("dsreal"), NULL, ours, &err), PL_E_INPUT, &err, "holds mark"); // a link is never ours
    assert_int_equal(unlink(at("dsreal/mark")), 0);
    assert_int_equal(symlink("dsreal", at("dslink")), 0);
    assert_ok(pl_dir_drop(at("dslink"), NULL, ours, &err));
    assert_int_equal(lstat(at("dslink"), &s), 0);
    assert_true(S_ISLNK(s.st_mode));
    assert_int_equal(entries(at("dsreal")), 0);
    assert_ok(pl_tree_remove(at("dsreal"), &err));
    assert_says(pl_dir_spares(at("dslink"), NULL, ours, &err), PL_E_INPUT, &err, "not a folder");
    put_text(at("dsfile"), "x");
    assert_says(pl_dir_spares(at("dsfile"), NULL, ours, &err), PL_E_INPUT, &err, "not a folder");
}

static void test_atomic_file_faults(void **state) {
    (void)state;
    pl_err err;
    assert_ok(pl_dir_make(at("ff"), &err));
    bool done = false;
    for (uint64_t n = 1; !done; n++) {
        assert_true(n < 20);
        put_text(at("ff/x"), "old");
        pl_io_fail_after(n);
        pl_status st = pl_file_write_atomic(at("ff/x"), "new", 3, &err);
        pl_io_fail_after(0);
        // The last step, the folder's fsync, can no longer undo anything.
        bool placed = st == PL_OK || strstr(err.msg, "written, but");
        assert_content(at("ff/x"), placed ? "new" : "old");
        assert_int_equal(entries(at("ff")), 1);
        if (st != PL_OK) assert_says(st, PL_E_IO, &err, "Input/output error");
        done = st == PL_OK;
    }
}

// ---- atomic folders ----

// Writes a product of three files, all with the same text.
static pl_status write_product(const char *path, const char *text, pl_err *err) {
    pl_atomic_dir a;
    PL_TRY(pl_atomic_dir_begin(&a, path, err));
    static const char *const names[] = {"a", "sub/b", "sub/c"};
    char                     file[600];
    snprintf(file, sizeof file, "%s/sub", pl_atomic_dir_path(&a));
    pl_status st = pl_dir_make(file, err);
    for (int i = 0; i < 3 && st == PL_OK; i++) {
        snprintf(file, sizeof file, "%s/%s", pl_atomic_dir_path(&a), names[i]);
        st = pl_file_write_atomic(file, text, strlen(text), err);
    }
    if (st == PL_OK) return pl_atomic_dir_commit(&a, err);
    pl_atomic_dir_abort(&a);
    return st;
}

// The text of a whole product's first letter, '-' if there is none, '?' if it is not whole.
static char look(const char *path) {
    static const char *const names[] = {"a", "sub/b", "sub/c"};
    if (!pl_path_exists(path)) return '-';
    char first = 0, file[600];
    for (int i = 0; i < 3; i++) {
        uint8_t *data;
        size_t   n;
        snprintf(file, sizeof file, "%s/%s", path, names[i]);
        if (pl_file_read(file, &data, &n, 100, NULL) != PL_OK) return '?';
        bool whole = n == 3 && (i == 0 || first == (char)data[0]);
        first = (char)data[0];
        pl_free(data);
        if (!whole) return '?';
    }
    return entries(path) == 2 ? first : '?';
}

static void test_atomic_dir(void **state) {
    (void)state;
    pl_err        err;
    pl_atomic_dir a;
    assert_ok(write_product(at("ad/deep/p"), "old", &err));
    assert_int_equal(look(at("ad/deep/p")), 'o');
    assert_ok(write_product(at("ad/deep/p///"), "new", &err));
    assert_int_equal(look(at("ad/deep/p")), 'n');
    assert_ok(pl_atomic_dir_begin(&a, at("ad/deep/p"), &err));
    assert_string_not_equal(pl_atomic_dir_path(&a), at("ad/deep/p"));
    pl_atomic_dir_abort(&a);
    pl_atomic_dir_abort(&a);
    assert_int_equal(look(at("ad/deep/p")), 'n');
    assert_int_equal(entries(at("ad/deep")), 1);
    put_text(at("ad/file"), "x");
    assert_says(pl_atomic_dir_begin(&a, at("ad/file"), &err), PL_E_INPUT, &err, "not a folder");
    assert_says(pl_atomic_dir_begin(&a, at("ad/file/p"), &err), PL_E_INPUT, &err, "cannot make the folder");
    assert_says(pl_atomic_dir_begin(&a, "/", &err), PL_E_INPUT, &err, "not a name");
}

static void test_atomic_dir_through_link(void **state) {
    (void)state;
    pl_err      err;
    struct stat s;
    assert_ok(write_product(at("adl/real"), "old", &err));
    assert_int_equal(symlink("real", at("adl/link")), 0);
    assert_ok(write_product(at("adl/link"), "new", &err));
    assert_int_equal(look(at("adl/real")), 'n');
    assert_int_equal(lstat(at("adl/link"), &s), 0);
    assert_true(S_ISLNK(s.st_mode));
    assert_int_equal(entries(at("adl")), 2);
}

static void test_atomic_dir_here(void **state) {
    (void)state;
    pl_err err;
    char   cwd[512];
    assert_non_null(getcwd(cwd, sizeof cwd));
    assert_ok(pl_dir_make(at("adh"), &err));
    assert_int_equal(chdir(at("adh")), 0);
    assert_ok(write_product("p", "old", &err));
    assert_int_equal(look("p"), 'o');
    assert_int_equal(chdir(at("adh/p")), 0);
    assert_ok(write_product(".", "new", &err));
    assert_int_equal(chdir(cwd), 0);
    assert_int_equal(look(at("adh/p")), 'n');
}

// Every step fails once: the call says so and the old product stands, or it does not and the new one does.
static void faults(const char *dir, bool old) {
    pl_err err;
    char   path[600];
    snprintf(path, sizeof path, "%s/p", dir);
    bool done = false;
    int  failures = 0;
    for (uint64_t n = 1; !done; n++) {
        assert_true(n < 200);
        assert_ok(pl_tree_remove(dir, &err));
        assert_ok(pl_dir_make(dir, &err));
        if (old) assert_ok(write_product(path, "old", &err));
        uint64_t before = pl_io_count();
        pl_io_fail_after(n);
        pl_status st = write_product(path, "new", &err);
        pl_io_fail_after(0);
        done = pl_io_count() - before < n;
        char wanted = st == PL_OK ? 'n' : old ? 'o' : '-';
        assert_int_equal(look(path), wanted);
        if (st != PL_OK) {
            failures++;
            assert_int_equal(st, PL_E_IO);
        }
        // Only a failing clean-up may leave something, and the next begin removes it.
        assert_ok(write_product(path, "end", &err));
        assert_int_equal(look(path), 'e');
        assert_int_equal(entries(dir), 1);
    }
    assert_true(failures > 15);
}

static void test_atomic_dir_faults(void **state) {
    (void)state;
    faults(at("adf"), true);
    faults(at("adf"), false);
    pl_io_no_exchange(true);
    faults(at("adf"), true);
    pl_io_no_exchange(false);
}

// The process ends at every step in turn. Afterwards the old product or the new one is whole under its name.
static void kills(const char *dir, bool old) {
    pl_err err;
    char   path[600];
    snprintf(path, sizeof path, "%s/p", dir);
    bool done = false, seen_before = false, seen_after = false;
    for (uint64_t n = 1; !done; n++) {
        assert_true(n < 200);
        assert_ok(pl_tree_remove(dir, &err));
        assert_ok(pl_dir_make(dir, &err));
        if (old) assert_ok(write_product(path, "old", &err));
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            pl_io_kill_after(n);
            _exit(write_product(path, "new", NULL) == PL_OK ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        done = WIFEXITED(status) && WEXITSTATUS(status) == 0;
        assert_true(done || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
        assert_ok(pl_atomic_dir_recover(path, &err));
        char found = look(path);
        assert_true(found == 'n' || found == (old ? 'o' : '-'));
        seen_before = seen_before || found != 'n';
        // A process that was killed while cleaning up leaves the new product.
        seen_after = seen_after || (found == 'n' && !done);
        assert_true(!done || found == 'n');
        assert_ok(write_product(path, "end", &err));
        assert_int_equal(look(path), 'e');
        assert_int_equal(entries(dir), 1);
    }
    assert_true(seen_before && seen_after);
}

static void test_atomic_dir_kills(void **state) {
    (void)state;
    kills(at("adk"), true);
    kills(at("adk"), false);
    pl_io_no_exchange(true);
    kills(at("adk"), true);
    pl_io_no_exchange(false);
}

// p succeeds q, which becomes r: dies or fails at every step in turn, both products are whole under two of the names.
static void succeeds(const char *dir, bool dies, bool exchange) {
    pl_err err;
    char   name[3][600];
    bool   done = false;
    int    missing = 0;
    for (int i = 0; i < 3; i++)
        snprintf(name[i], sizeof name[i], "%s/%c", dir, 'p' + i);
    for (uint64_t n = 1; !done; n++) {
        assert_true(n < 20);
        assert_ok(pl_tree_remove(dir, &err));
        assert_ok(pl_dir_make(dir, &err));
        assert_ok(write_product(name[1], "old", &err));
        assert_ok(write_product(name[0], "new", &err));
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            if (dies)
                pl_io_kill_after(n);
            else
                pl_io_fail_after(n);
            _exit(pl_path_succeed(name[0], name[1], name[2], NULL) == PL_OK ? 0 : 1);
        }
        int status, olds = 0, news = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        done = WIFEXITED(status) && WEXITSTATUS(status) == 0;
        assert_int_equal(entries(dir), 2);
        for (int i = 0; i < 3; i++) {
            char found = look(name[i]);
            olds += found == 'o';
            news += found == 'n';
        }
        assert_true(olds == 1 && news == 1);
        missing += look(name[1]) == '-';
        assert_true(!done || (look(name[1]) == 'n' && look(name[2]) == 'o'));
    }
    assert_int_equal(missing > 0, !exchange);
    assert_ok(pl_tree_remove(name[1], &err));
    assert_ok(pl_path_succeed(name[2], name[1], name[0], &err)); // nothing to succeed
    assert_int_equal(look(name[1]), 'o');
    assert_int_equal(entries(dir), 1);
}

static void test_succeed(void **state) {
    (void)state;
    succeeds(at("suc"), true, true);
    succeeds(at("suc"), false, true);
    pl_io_no_exchange(true);
    succeeds(at("suc"), true, false);
    succeeds(at("suc"), false, false);
    pl_io_no_exchange(false);
}

static void test_atomic_dir_memory(void **state) {
    (void)state;
    pl_err err;
    bool   done = false;
    for (uint64_t n = 1; !done; n++) {
        assert_true(n < 200);
        assert_ok(write_product(at("adm/p"), "old", &err));
        pl_alloc_fail_after(n);
        pl_status st = write_product(at("adm/p"), "new", &err);
        done = st == PL_OK;
        pl_alloc_fail_after(0);
        assert_true(done || st == PL_E_MEMORY);
        assert_int_equal(look(at("adm/p")), done ? 'n' : 'o');
        assert_int_equal(entries(at("adm")), 1);
    }
}

// What a dead process left goes with the next begin; what a living one writes stays.
static void test_stale(void **state) {
    (void)state;
    pl_err err;
    int    ready[2];
    assert_int_equal(pipe(ready), 0);
    assert_ok(pl_dir_make(at("st"), &err));
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        pl_atomic_dir  a;
        pl_atomic_file f;
        if (pl_atomic_dir_begin(&a, at("st/p"), NULL) != PL_OK || pl_atomic_file_begin(&f, at("st/f"), NULL) != PL_OK)
            _exit(1);
        if (write(ready[1], "x", 1) != 1) _exit(1);
        for (;;)
            pause();
    }
    char c;
    assert_int_equal(read(ready[0], &c, 1), 1);
    assert_ok(write_product(at("st/p"), "new", &err));
    assert_ok(pl_file_write_atomic(at("st/f"), "new", 3, &err));
    assert_int_equal(entries(at("st")), 4);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_ok(write_product(at("st/p"), "new", &err));
    assert_int_equal(entries(at("st")), 3);
    assert_ok(pl_file_write_atomic(at("st/f"), "new", 3, &err));
    assert_int_equal(entries(at("st")), 2);
    close(ready[0]);
    close(ready[1]);
    // Names that only look alike are nobody's temporaries, and process 1 lives: it may be about to lock.
    static const char *const kept[] = {".p.tmp-",       ".p.tmp-12x",   ".p.tmp--5",
                                       ".q.tmp-999999", "p.tmp-999999", ".p.tmp-1"};
    for (int i = 0; i < 6; i++) {
        char name[64];
        snprintf(name, sizeof name, "st/%s", kept[i]);
        put_text(at(name), "x");
    }
    assert_ok(write_product(at("st/p"), "new", &err));
    assert_int_equal(entries(at("st")), 8);
}

static pid_t dead_process(void) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    return child;
}

// A folder that is taken over is rid of what dead processes left of the products that are listed, and of nothing else.
static void test_sweep(void **state) {
    (void)state;
    static const char *const ours[] = {"last/", "a.b/", "there/", "file*.json", "aside", "p/", "f", "own", NULL};
    pl_err                   err;
    int                      ready[2];
    char                     name[64];
    pid_t                    gone = dead_process();
    pl_dir_sweep(at("nowhere"), ours);
    assert_ok(pl_dir_make(at("sw/there"), &err));
    static const char *const left[] = {".last.tmp-", ".a.b.tmp-", ".there.old-"};
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "sw/%s%d", left[i], (int)gone);
        assert_ok(pl_dir_make(at(name), &err));
        snprintf(name, sizeof name, "sw/%s%d/model", left[i], (int)gone);
        put_text(at(name), "x");
    }
    snprintf(name, sizeof name, "sw/.file.json.tmp-%d", (int)gone);
    put_text(at(name), "x");
    snprintf(name, sizeof name, "sw/.aside.old-%d", (int)gone); // its successor never came
    put_text(at(name), "old");
    // What a living process writes, locked; and what process 1 has just made and may be about to lock.
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        pl_atomic_dir  a;
        pl_atomic_file f;
        if (pl_atomic_dir_begin(&a, at("sw/p"), NULL) != PL_OK || pl_atomic_file_begin(&f, at("sw/f"), NULL) != PL_OK ||
            write(ready[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    char c;
    assert_int_equal(read(ready[0], &c, 1), 1);
    char notes[64];
    snprintf(notes, sizeof notes, "sw/.notes.tmp-%d", (int)gone); // another program's
    const char *const kept[] = {"sw/.p.tmp-1", "sw/.p.tmp-12x", "sw/p.tmp-999999", "sw/..tmp-999999", notes};
    enum { KEPT = sizeof kept / sizeof *kept };
    for (int i = 0; i < KEPT; i++)
        put_text(at(kept[i]), "x");
    pl_atomic_file own;
    assert_ok(pl_atomic_file_begin(&own, at("sw/own"), &err));
    pl_dir_sweep(at("sw"), ours);
    assert_int_equal(entries(at("sw")), 1 + 1 + 2 + KEPT + 1); // there, aside, the child's, those kept, own
    assert_content(at("sw/aside"), "old");
    for (int i = 0; i < KEPT; i++)
        assert_content(at(kept[i]), "x");
    assert_ok(pl_atomic_file_commit(&own, &err));
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    pl_dir_sweep(at("sw"), ours);
    assert_int_equal(entries(at("sw")), 1 + 1 + KEPT + 1);
    close(ready[0]);
    close(ready[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_dir_make),
        cmocka_unit_test(test_dir_lock),
        cmocka_unit_test(test_tree_remove_keeps_link_targets),
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_read_memory),
        cmocka_unit_test(test_map),
        cmocka_unit_test(test_map_cut),
        cmocka_unit_test(test_atomic_file),
        cmocka_unit_test(test_links_are_refused),
        cmocka_unit_test(test_file_spares),
        cmocka_unit_test(test_dir_spares),
        cmocka_unit_test(test_atomic_file_faults),
        cmocka_unit_test(test_atomic_dir),
        cmocka_unit_test(test_atomic_dir_through_link),
        cmocka_unit_test(test_atomic_dir_here),
        cmocka_unit_test(test_atomic_dir_faults),
        cmocka_unit_test(test_atomic_dir_kills),
        cmocka_unit_test(test_succeed),
        cmocka_unit_test(test_atomic_dir_memory),
        cmocka_unit_test(test_stale),
        cmocka_unit_test(test_sweep),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}

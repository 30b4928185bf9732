// Where the secret of joined ranks comes from: files and their modes, the environment, and one that rank 0 draws.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/port.h"
#include "train/run/secret.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

static char base[] = "/tmp/paceline-test-XXXXXX";

static const char *in_base(const char *name) {
    static char path[4][96];
    static int  turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", base, name);
    return path[turn];
}

static const char *write_file(const char *name, const char *text, mode_t mode) {
    const char *path = in_base(name);
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && fchmod(fd, mode) == 0);
    close(fd);
    return path;
}

#define GOOD "0123456789abcdef0123456789abcdef"

static const pl_launch hosts = {.ranks = 2, .address = "node1:5000"};
static const pl_launch here[2] = {{.rank = 0, .ranks = 2, .one_host = true, .address = "127.0.0.1:5000"},
                                  {.rank = 1, .ranks = 2, .one_host = true, .address = "localhost:5000"}};

static pl_status key_of(uint8_t key[PL_COMM_KEY], const char *file, const char *text, pl_err *err) {
    pl_secret s;
    pl_status st = pl_secret_open(&s, &hosts, file, text, err);
    if (st == PL_OK) st = pl_secret_key(&s, key, err);
    pl_secret_close(&s);
    return st;
}

// ---- given ones

static void files_are_their_owners(void **state) {
    (void)state;
    static const struct {
        mode_t      mode;
        const char *text, *says; // NULL: is taken
    } row[] = {
        {0600, GOOD, NULL},
        {0400, GOOD, NULL},
        {0640, GOOD, "has the mode 0640, by which others may read the secret; chmod 600 "},
        {0604, GOOD, "has the mode 0604, "},
        {0660, GOOD, "has the mode 0660, "},
        {0444, GOOD, "has the mode 0444, "},
        {0600, "short", "holds 5 bytes; a secret has at least 32"},
        {0600, "", "holds 0 bytes; a secret has at least 32"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        uint8_t   key[PL_COMM_KEY];
        pl_err    err = {0};
        pl_status st = key_of(key, write_file("given", row[i].text, row[i].mode), NULL, &err);
        if (st != (row[i].says ? PL_E_USAGE : PL_OK) || (row[i].says && !strstr(err.msg, row[i].says)))
            fail_msg("%04o, '%s': %s", (unsigned)row[i].mode, row[i].text, st ? err.msg : "is taken");
    }
}

static void what_is_no_file(void **state) {
    (void)state;
    uint8_t key[PL_COMM_KEY];
    pl_err  err = {0};
    char    large[5000];
    memset(large, 'a', sizeof large - 1);
    large[sizeof large - 1] = 0;
    assert_int_equal(mkfifo(in_base("fifo"), 0600), 0);
    assert_int_equal(key_of(key, in_base("fifo"), NULL, &err), PL_E_USAGE);
    assert_non_null(strstr(err.msg, "is no regular file"));
    assert_int_equal(key_of(key, base, NULL, &err), PL_E_USAGE);
    assert_int_equal(key_of(key, in_base("nowhere"), NULL, &err), PL_E_IO);
    assert_int_equal(key_of(key, write_file("large", large, 0600), NULL, &err), PL_E_USAGE);
    assert_non_null(strstr(err.msg, "more than 4096 bytes"));
}

// One secret has one key, from a file (with a newline or without) as from the environment.
static void a_secret_has_one_key(void **state) {
    (void)state;
    uint8_t a[PL_COMM_KEY], b[PL_COMM_KEY], c[PL_COMM_KEY], d[PL_COMM_KEY];
    pl_err  err = {0};
    assert_int_equal(key_of(a, write_file("plain", GOOD, 0600), NULL, &err), PL_OK);
    assert_int_equal(key_of(b, write_file("line", GOOD "\n", 0600), "another one, which counts not at all", &err),
                     PL_OK);
    assert_int_equal(key_of(c, NULL, GOOD, &err), PL_OK);
    assert_int_equal(key_of(d, NULL, GOOD "0", &err), PL_OK);
    assert_memory_equal(a, b, sizeof a);
    assert_memory_equal(a, c, sizeof a);
    assert_memory_not_equal(a, d, sizeof a);
    assert_int_equal(key_of(a, NULL, "0123456789abcdef", &err), PL_E_USAGE);
    assert_non_null(strstr(err.msg, "PACELINE_SECRET: holds 16 bytes"));
}

static void several_hosts_need_one(void **state) {
    (void)state;
    uint8_t key[PL_COMM_KEY];
    pl_err  err = {0};
    assert_int_equal(key_of(key, NULL, "", &err), PL_E_USAGE);
    assert_true(strstr(err.msg, "head -c 32 /dev/urandom") && strstr(err.msg, "--secret-file") &&
                strstr(err.msg, "PACELINE_SECRET"));
}

// ---- drawn ones

static void is_own(const char *path, mode_t mode) {
    struct stat is;
    assert_int_equal(lstat(path, &is), 0);
    if ((is.st_mode & 07777) != mode) fail_msg("%s: %04o", path, (unsigned)is.st_mode & 07777);
}

static void one_is_drawn(void **state) {
    (void)state;
    pl_secret s[2];
    uint8_t   key[2][PL_COMM_KEY];
    pl_err    err = {0};
    umask(0);
    for (int r = 0; r < 2; r++)
        if (pl_secret_open(&s[r], &here[r], NULL, NULL, &err) != PL_OK) fail_msg("%s", err.msg);
    is_own(in_base("paceline"), 0700);
    assert_int_equal(pl_secret_key(&s[1], key[1], &err), PL_E_IO); // none yet
    write_file("paceline/ranks-5000", "of a run that was killed, so many bytes", 0600);
    assert_int_equal(pl_secret_key(&s[1], key[1], &err), PL_OK);
    assert_int_equal(pl_secret_key(&s[0], key[0], &err), PL_OK);
    is_own(in_base("paceline/ranks-5000"), 0600);
    assert_memory_not_equal(key[0], key[1], sizeof *key);
    assert_int_equal(pl_secret_key(&s[1], key[1], &err), PL_OK);
    assert_memory_equal(key[0], key[1], sizeof *key);
    pl_secret_close(&s[1]);
    is_own(in_base("paceline/ranks-5000"), 0600);
    pl_secret_close(&s[0]);
    assert_int_equal(access(in_base("paceline/ranks-5000"), F_OK), -1);
    assert_int_equal(rmdir(in_base("paceline")), 0); // nothing is left
}

static void the_next_runs_file_stays(void **state) {
    (void)state;
    pl_secret first, next;
    uint8_t   key[PL_COMM_KEY];
    pl_err    err = {0};
    assert_int_equal(pl_secret_open(&first, &here[0], NULL, NULL, &err), PL_OK);
    assert_int_equal(pl_secret_key(&first, key, &err), PL_OK);
    assert_int_equal(pl_secret_open(&next, &here[0], NULL, NULL, &err), PL_OK);
    assert_int_equal(pl_secret_key(&next, key, &err), PL_OK);
    pl_secret_close(&first);
    assert_int_equal(access(in_base("paceline/ranks-5000"), F_OK), 0);
    pl_secret_close(&next);
    assert_int_equal(access(in_base("paceline/ranks-5000"), F_OK), -1);
}

// A folder that others may write holds no secret, nor one that a link leads to.
static void folders_are_their_owners(void **state) {
    (void)state;
    pl_secret s;
    pl_err    err = {0};
    rmdir(in_base("paceline"));
    assert_int_equal(mkdir(in_base("elsewhere"), 0700), 0);
    assert_int_equal(symlink("elsewhere", in_base("paceline")), 0);
    assert_int_equal(pl_secret_open(&s, &here[0], NULL, NULL, &err), PL_E_IO);
    assert_non_null(strstr(err.msg, "is no folder of this user's alone"));
    pl_secret_close(&s);
    unlink(in_base("paceline"));
    assert_int_equal(mkdir(in_base("paceline"), 0700), 0);
    assert_int_equal(chmod(in_base("paceline"), 0755), 0);
    assert_int_equal(pl_secret_open(&s, &here[0], NULL, NULL, &err), PL_E_IO);
    pl_secret_close(&s);
    rmdir(in_base("paceline"));
    // Nor a session's folder that is no such one: then it is /tmp.
    assert_int_equal(chmod(base, 0755), 0);
    assert_int_equal(pl_secret_open(&s, &here[0], NULL, NULL, &err), PL_OK);
    assert_int_equal(strncmp(s.folder, "/tmp/paceline-", 14), 0);
    pl_secret_close(&s);
    assert_int_equal(chmod(base, 0700), 0);
}

// Ranks of one host join by it, the later ones before rank 0, beside a file that an earlier run left.
static void ranks_join_by_it(void **state) {
    (void)state;
    char name[48];
    int  port = test_free_port();
    mkdir(in_base("paceline"), 0700);
    snprintf(name, sizeof name, "paceline/ranks-%d", port);
    write_file(name, "of a run that was killed, so many bytes", 0600);
    pid_t child[3];
    fflush(NULL);
    for (int r = 2; r >= 0; r--) {
        child[r] = fork();
        assert_true(child[r] >= 0);
        if (child[r] > 0) {
            nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
            continue;
        }
        pl_secret s;
        pl_err    err = {0};
        pl_comm  *c = NULL;
        pl_launch l = {.rank = r, .ranks = 3, .one_host = true};
        snprintf(l.address, sizeof l.address, "127.0.0.1:%d", port);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(40);
        pl_status     st = pl_secret_open(&s, &l, NULL, NULL, &err);
        pl_comm_place p = {.rank = r, .ranks = 3, .address = l.address, .patience = 20};
        p.find_key = pl_secret_key;
        p.key_arg = &s;
        if (st == PL_OK) st = pl_comm_join(&c, &p, &err);
        if (st == PL_OK) st = pl_comm_barrier(c, &err);
        pl_secret_close(&s);
        pl_comm_close(c);
        if (st != PL_OK) fprintf(stderr, "rank %d: %s\n", r, err.msg);
        _exit(st == PL_OK ? 0 : 1);
    }
    bool good = true;
    for (int r = 0; r < 3; r++) {
        int how = 0;
        good &= waitpid(child[r], &how, 0) == child[r] && WIFEXITED(how) && WEXITSTATUS(how) == 0;
    }
    assert_true(good);
    assert_int_equal(access(in_base(name), F_OK), -1);
}

static int make_base(void **state) {
    (void)state;
    return mkdtemp(base) ? setenv("XDG_RUNTIME_DIR", base, 1) : -1;
}

static int remove_base(void **state) {
    (void)state;
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", base);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_their_owners),
        cmocka_unit_test(what_is_no_file),
        cmocka_unit_test(a_secret_has_one_key),
        cmocka_unit_test(several_hosts_need_one),
        cmocka_unit_test(one_is_drawn),
        cmocka_unit_test(the_next_runs_file_stays),
        cmocka_unit_test(folders_are_their_owners),
        cmocka_unit_test(ranks_join_by_it),
    };
    return cmocka_run_group_tests(tests, make_base, remove_base);
}

// Every failure of memory, disk and threads that a command can meet, one after another (fault.h, walk.h).
//   test_fault              a sample over all commands, for the suite
//   test_fault all [NAME..] every call of our own, a larger sample inside libraries; one line per command
//   test_fault one NAME own|libs KIND N[+]   one failure, with where it was and what is left over
#include "walk.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

typedef struct counts {
    walk_counts own[FAULT_KIND_COUNT], libs[FAULT_KIND_COUNT];
} counts;

static walk_counts sum(const walk_counts k[FAULT_KIND_COUNT]) {
    walk_counts s = {0};
    for (int i = 0; i < FAULT_KIND_COUNT; i++) {
        s.points += k[i].points;
        s.survived += k[i].survived;
        s.clean += k[i].clean;
        s.again += k[i].again;
        s.findings += k[i].findings;
        s.libraries += k[i].libraries;
    }
    return s;
}

static void sample(void **state) {
    static const walk_options few = {.own = 6, .libs = 2, .again = 5};
    const command            *c = *state;
    counts                    k = {0};
    walk_all(c, &few, k.own, k.libs);
    walk_counts own = sum(k.own), libs = sum(k.libs);
    assert_true(own.points > 10);
    assert_int_equal(own.findings + libs.findings, 0);
}

static void say(const char *side, const walk_counts k[FAULT_KIND_COUNT]) {
    walk_counts s = sum(k);
    printf("  %s %d points: %d failed cleanly, %d survived, %d by a library's own end, %d gone on from, %d findings (",
           side, s.points, s.clean, s.survived, s.libraries, s.again, s.findings);
    for (int i = 0, first = 1; i < FAULT_KIND_COUNT; i++)
        if (k[i].points) {
            printf("%s%s %d", first ? "" : ", ", fault_kind_name((fault_kind)i), k[i].points);
            if (k[i].survived) printf(":%d", k[i].survived);
            first = 0;
        }
    printf(")\n");
}

static int all(int n, char **names) {
    static const walk_options every = {.own = 0, .libs = 80, .again = 10};
    int                       findings = 0;
    walk_options              o = every;
    o.verbose = getenv("FAULT_VERBOSE") != NULL;
    for (int i = 0; i < walk_command_count; i++) {
        bool wanted = n == 0;
        for (int j = 0; j < n; j++)
            wanted |= strcmp(names[j], walk_commands[i].name) == 0;
        if (!wanted) continue;
        counts k = {0};
        time_t t = time(NULL);
        walk_all(&walk_commands[i], &o, k.own, k.libs);
        printf("%s (%.0f s):\n", walk_commands[i].name, difftime(time(NULL), t));
        say("own ", k.own);
        say("libs", k.libs);
        fflush(stdout);
        findings += sum(k.own).findings + sum(k.libs).findings;
    }
    return findings != 0;
}

static int one(char **a) {
    const command *c = walk_command(a[0]);
    for (int k = 0; k < FAULT_KIND_COUNT; k++)
        if (c && strcmp(fault_kind_name((fault_kind)k), a[2]) == 0) {
            walk_one(c, strcmp(a[1], "own") == 0 ? FAULT_OWN : FAULT_LIBS, (fault_kind)k, strtoull(a[3], NULL, 10),
                     strchr(a[3], '+') != NULL);
            return 0;
        }
    fprintf(stderr, "no such command or kind\n");
    return 2;
}

int main(int argc, char **argv) {
    int status;
    walk_setup();
    if (argc > 1 && strcmp(argv[1], "all") == 0) {
        status = all(argc - 2, argv + 2);
    } else if (argc == 6 && strcmp(argv[1], "one") == 0) {
        status = one(argv + 2);
    } else {
        struct CMUnitTest tests[16];
        for (int i = 0; i < walk_command_count; i++)
            tests[i] = (struct CMUnitTest){
                .name = walk_commands[i].name, .test_func = sample, .initial_state = (void *)&walk_commands[i]};
        status = _cmocka_run_group_tests("fault", tests, (size_t)walk_command_count, NULL, NULL);
    }
    walk_teardown();
    return status;
}

// Walks a command of the program through its failures: runs it again and again, each time with another call failing,
// and looks at everything that is left.
//
// For every point that was reached (h: held on every one, s: on those of the sample):
//   h  the process returned: no crash, no abort, no hang
//   h  exit 1 with one line "paceline: ..." and an empty standard output; or exit 0, then the product is, file by file,
//      that of an undisturbed run, and nothing was said
//   h  no block, mapping or file of ours is still held, no object of cJSON or libyaml
//   h  no temporary is left (unless the failing call is a removal), every file of the product is old, new or whole
//   s  the same command without a failure then completes, with the bits of an undisturbed run
#ifndef PL_TEST_FAULT_WALK_H
#define PL_TEST_FAULT_WALK_H

#include "fault.h"

typedef struct command {
    const char *name;
    const char *args;   // as typed behind "paceline", split at blanks
    const char *before; // copied to `out` before every run; NULL: nothing is there
    bool        stdout_is_product;
    bool        once; // a second run over a complete product is refused, and says so
    bool        adds; // a second run over a complete product makes another one: not run again
} command;

typedef struct walk_options {
    int  own, libs; // points per kind at most, evenly spread; 0: every one
    int  again;     // every so many points the command is run again without failure
    bool verbose;   // every finding in full on standard error, with how to see it alone
} walk_options;

typedef struct walk_counts {
    int points, survived, clean, again, findings;
    int libraries; // ends and messages that are a library's own: counted, and listed in LIBRARIES.md
} walk_counts;

// Makes the scratch folder with the fixtures all commands share, and goes there.
void walk_setup(void);
void walk_teardown(void);

extern const command walk_commands[];
extern const int     walk_command_count;
const command       *walk_command(const char *name); // NULL: none

// All kinds and sides of one command; findings are printed and counted.
void walk_all(const command *c, const walk_options *o, walk_counts own[FAULT_KIND_COUNT],
              walk_counts libs[FAULT_KIND_COUNT]);
// One failure, with traces on standard error.
void walk_one(const command *c, fault_side side, fault_kind kind, uint64_t n, bool onward);

#endif

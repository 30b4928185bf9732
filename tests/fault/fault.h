// Failures on demand, for the whole program, with nothing of it in the program.
//
// Decision. The product carries no hook for this: the test program is linked from the product's own objects (the
// library and paceline.c with main renamed) and two layers that only it has.
//   own        -Wl,--wrap=NAME sends every call that our objects make to the C library through fault_wrap.c. The linker
//              redirects undefined references, so it sees exactly our calls: no return addresses, no guessing. It works
//              under the sanitizers too, because the real function behind it is theirs.
//   libraries  fault_libs.c defines the same names in the executable, which dynamic symbol lookup finds before libc: so
//              the calls of HDF5, cJSON, libyaml, libstdc++ (sentencepiece) and of libc itself (realpath,
//              fopen) arrive there. Calls from inside of one of our own are not counted again. Not built with
//              sanitizers, which own those names.
// Hooks in kernels/base (pl_alloc_fail_after, pl_io_fail_after) serve the units' tests; they cannot reach libraries,
// nor reads, opens and looks at files, and a seam in the product for all of that would be paid for by every user.
//
// Out of reach: what libc does inside of itself (the write behind fflush, getdents behind readdir), and memory that is
// mapped but turns out not to be there on touch (SIGBUS, the kernel's out-of-memory killer).
#ifndef PL_TEST_FAULT_H
#define PL_TEST_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// What can fail. name, the errno, and what stands behind it.
#define FAULT_KINDS(X)                                                                                                 \
    X(ALLOC, "alloc", ENOMEM)        /* malloc, calloc, realloc, and calls of libc that allocate */                    \
    X(MAP, "map", ENOMEM)            /* mmap */                                                                        \
    X(OPEN, "open", EMFILE)          /* open for reading, fopen, opendir, dup */                                       \
    X(CREATE, "create", ENOSPC)      /* open that creates, mkdir */                                                    \
    X(READ, "read", EIO)             /* read, pread, readdir */                                                        \
    X(LOOK, "look", EIO)             /* stat and its kin */                                                            \
    X(WRITE, "write", ENOSPC)        /* write, pwrite, ftruncate, fflush */                                            \
    X(SYNC, "fsync", EIO)            /* fsync */                                                                       \
    X(RENAME, "rename", EIO)         /* rename and its kin */                                                          \
    X(REMOVE, "remove", EIO)         /* unlink, rmdir */                                                               \
    X(LOCK, "lock", ENOLCK)          /* flock */                                                                       \
    X(THREAD, "thread", EAGAIN)      /* pthread_create */                                                              \
    X(SHORT_READ, "short-read", 0)   /* read gives one byte less than asked (not an error) */                          \
    X(SHORT_WRITE, "short-write", 0) /* write takes half of the bytes (not an error) */                                \
    X(EINTR_READ, "eintr-read", EINTR)                                                                                 \
    X(EINTR_WRITE, "eintr-write", EINTR)

typedef enum fault_kind {
#define X(id, name, cause) FAULT_##id,
    FAULT_KINDS(X)
#undef X
        FAULT_KIND_COUNT
} fault_kind;

typedef enum fault_side { FAULT_OWN, FAULT_LIBS } fault_side;

typedef struct fault_plan {
    fault_kind kind;
    fault_side side;
    uint64_t   n;      // the n-th call fails; 0: none
    bool       onward; // and every later one: a disk that stays full
    bool       trace;  // says on standard error where it failed and where what is left over was made
} fault_plan;

enum { FAULT_LEAKS = 4, FAULT_FRAMES = 12 };

// What a run came to; the run's process fills it and another reads it, in shared memory.
typedef struct fault_report {
    uint64_t seen[2][FAULT_KIND_COUNT]; // calls of each side
    uint64_t fired;                     // failures given
    bool     ended;                     // the program returned (else it crashed or hung)
    int      code;                      // what it returned
    int64_t  blocks, maps, files;       // of our own, still held when it returned
    int64_t  cjson, yaml;               // blocks of these libraries, whose objects we own
    char     culprit[64];               // the object (our program or a library) that crashed or called exit
    bool     ours;                      // it is our program
} fault_report;

const char *fault_kind_name(fault_kind k);
// From here to fault_disarm calls are counted, followed and, at plan, failed.
void        fault_arm(fault_report *r, const fault_plan *plan);
void        fault_disarm(void);
// From now on a crash or a call of exit is put down in the report, with the object it came from.
void        fault_catch(fault_report *r);

// ---- between the layers ----

// True when this call has to fail (errno is set).
bool                     fault_due(fault_side side, fault_kind k);
// Blocks that are handed out and come back. `site` is where the caller stands.
void                     fault_took(fault_side side, const void *p, const void *site);
void                     fault_gave(const void *p);
void                     fault_mapped(int64_t change);
// Calls inside of one of our own calls are not the libraries'.
extern _Thread_local int fault_inside;

#endif

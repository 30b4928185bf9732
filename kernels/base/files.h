// Files and folders: reading, mapping, and products that appear whole or not at all.
//
// An atomic product is written beside its final name, as ".NAME.tmp-PID" in the same folder, made durable (fsync of
// every file and folder) and swapped in by one rename. A process killed at any instant leaves the old product or the
// new one, whole, under the final name. What a dead process left behind is removed when the same product is begun
// again, and by whoever takes the folder over (pl_dir_sweep); a lock (flock) on the temporary tells the dead from the
// living, also between containers that share a disk.
//
// World failures only: PL_E_IO (PL_E_INPUT where a file is not there, too large or not a file). Every message names the
// path. Functions that fill a struct leave it zeroed on failure, and close/abort of a zeroed struct does nothing.
#ifndef PL_FILES_H
#define PL_FILES_H

#include "kernels/base/status.h"
#include <stdbool.h>
#include <stdint.h>

// ---- paths and whole files ----

// "dir/name" on the heap (pl_free), NULL when out of memory. An empty or NULL dir gives name alone.
char       *pl_path_join(const char *dir, const char *name);
// What stands behind the last '/': points into path.
const char *pl_path_name(const char *path);
// Whether it ends in `tail` (".json").
bool        pl_path_ends(const char *path, const char *tail);
// Follows links. Where the machine does not tell (no permission, a failing disk) it counts as there: opening it then
// says why, and nothing is made anew over what may be whole.
bool        pl_path_exists(const char *path);
bool        pl_path_is_dir(const char *path);
// Whether it is there and neither a file nor a folder: a FIFO, a socket, a device, which libraries would wait for.
bool        pl_path_is_special(const char *path);
// Whether both are there and are one.
bool        pl_path_same(const char *a, const char *b);
// Whether path is dir or lies in it, by their names alone: neither need be there, and links are not followed.
bool        pl_path_within(const char *path, const char *dir);
// As pl_path_is_dir, for those who would leave something out where the answer is no: a look that fails is told.
pl_status   pl_path_look_dir(const char *path, bool *is_dir, pl_err *err);

// Returns what a file's first bytes are of (a pointer of Git LFS, a page of HTML, Parquet, UTF-16, gzip, zip, GGUF,
// safetensors), with how to mend it, for the line that refuses the file; NULL: none of these.
const char *pl_sniff(const void *data, size_t n);
// Returns "; ..." to append to a message that a path is not there, if it begins with "~/", which shells alone expand,
// not in quotes, not in recipes; else "".
const char *pl_sniff_path(const char *path);

// mkdir -p. A folder that is already there is no error.
pl_status pl_dir_make(const char *path, pl_err *err);
// Takes the folder for this process: two runs in one folder would undo each other's work. *fd holds the lock (on the
// file .lock in it) until pl_dir_unlock or the end of the process. PL_E_INPUT when another process has it. Where a file
// system has no locks the folder is everybody's.
pl_status pl_dir_lock(const char *dir, int *fd, pl_err *err);
void      pl_dir_unlock(int fd); // -1 is fine
// Removes from the folder what dead processes left: temporaries of products that `ours` lists (as pl_dir_spares has
// it), and products set aside whose successor is there (one without is put back). Nothing that a living process writes
// is touched; a folder that is not there, or cannot be cleaned, is no error.
void      pl_dir_sweep(const char *path, const char *const *ours);
// A file or folder takes another name on the same disk, in one step; a file of that name gives way.
pl_status pl_path_rename(const char *from, const char *to, pl_err *err);
// rm -r; links are removed, never followed. Nothing there is no error.
pl_status pl_tree_remove(const char *path, pl_err *err);

// The whole of a regular file of at most max_bytes, on the heap (pl_free) with a 0 byte behind it that *n leaves out.
// FIFOs, sockets and devices are refused (PL_E_INPUT), here and in all that opens a file to read it.
pl_status pl_file_read(const char *path, uint8_t **data, size_t *n, size_t max_bytes, pl_err *err);
// Reads likewise an input that a user may pipe in (/dev/stdin, a shell's <(...)): a pipe or device is read to its end.
pl_status pl_stream_read(const char *path, uint8_t **data, size_t *n, size_t max_bytes, pl_err *err);
// A regular file with exactly these bytes under this name, or the file that was there before. A link is refused.
pl_status pl_file_write_atomic(const char *path, const void *data, size_t n, pl_err *err);
// A file that grows or is locked: *fd as by open with these flags. A link is not followed, and what is no regular file
// is refused, both with PL_E_INPUT.
pl_status pl_file_open(const char *path, int flags, int *fd, pl_err *err);
// All n bytes to an open descriptor, for files that grow; `path` is for the message.
pl_status pl_fd_write(int fd, const char *path, const void *data, size_t n, pl_err *err);

// ---- what is there already ----
//
// A command replaces and removes what the program made and nothing else. Before its first byte it looks at each name
// that it will write: PL_E_INPUT with what would be lost and how to mend it.

#define PL_FRONT ((size_t)64 << 10) // bytes of a file by which it is known
// Whether a file of the kind that stands under a name begins with these n bytes (the whole file, where n < PL_FRONT).
typedef bool (*pl_ours_fn)(const char *front, size_t n);

// PL_OK: nothing is there, or a regular file and no link.
pl_status pl_file_look(const char *path, pl_err *err);
// PL_OK: nothing is there, or a regular file, no link, that is empty or `ours` (NULL: none is). option: the way to
// another place, for the message ("--out").
pl_status pl_file_spares(const char *path, pl_ours_fn ours, const char *option, pl_err *err);
// PL_OK: nothing is there, or a folder (also behind a link) that is empty, or holds `mark` (NULL: no need) and nothing
// but what `ours` lists and temporaries of that. ours: patterns of fnmatch, NULL behind the last; one that ends with
// '/' is of folders, the others are of regular files.
pl_status pl_dir_spares(const char *path, const char *mark, const char *const *ours, pl_err *err);
// A folder that pl_dir_spares goes; behind a link, what it holds.
pl_status pl_dir_drop(const char *path, const char *mark, const char *const *ours, pl_err *err);

// ---- mapped files ----

typedef struct pl_map {
    const uint8_t *data; // NULL for an empty file
    size_t         size;
} pl_map;

// Read-only and private. A file that is cut while mapped raises SIGBUS on touch (pl_map_guard): products are replaced,
// never cut.
pl_status pl_map_open(pl_map *m, const char *path, pl_err *err);
void      pl_map_close(pl_map *m);
// Tells the kernel that the pages under [p, p + bytes) of a mapping are not needed now; a later touch reads them again.
void      pl_map_drop(const void *p, size_t bytes);
// For a program, as the handler is the process's: SIGBUS inside a mapping of pl_map_open ends it with the exit code of
// PL_E_IO, a line with the file's name on standard error and its temporaries removed. Elsewhere SIGBUS stays as it is.
void      pl_map_guard(void);

// ---- atomic files ----

typedef struct pl_atomic_file {
    char *path, *temp; // owned
    int   fd;          // open for writing
} pl_atomic_file;

// The folder must exist. What is there under the name is a regular file, and no link.
pl_status pl_atomic_file_begin(pl_atomic_file *a, const char *path, pl_err *err);
pl_status pl_atomic_file_append(pl_atomic_file *a, const void *data, size_t n, pl_err *err);
// fsync, rename, fsync of the folder. Ends the life of *a, also on failure (then the temporary is removed).
pl_status pl_atomic_file_commit(pl_atomic_file *a, pl_err *err);
// Writes over n bytes that were appended, from offset `at` on: a front whose sums are known at the end.
pl_status pl_atomic_file_rewrite(pl_atomic_file *a, size_t at, const void *data, size_t n, pl_err *err);
void      pl_atomic_file_abort(pl_atomic_file *a); // nothing after commit

// ---- atomic folders ----

typedef struct pl_atomic_dir {
    char *path, *temp; // owned
    int   lock;        // descriptor of the temporary, locked while alive
} pl_atomic_dir;

// Makes the parents of `path` and an empty temporary folder. `path` may exist (then it is replaced by commit as a
// whole) if it is a folder; a link to a folder is resolved first, so that the folder is replaced and the link stays.
pl_status   pl_atomic_dir_begin(pl_atomic_dir *a, const char *path, pl_err *err);
const char *pl_atomic_dir_path(const pl_atomic_dir *a); // where to write: the temporary folder
// fsync of everything, swap, fsync of the parent, removal of the old. Ends the life of *a, also on failure (then the
// temporary is removed and the old product stands). Where the file system cannot exchange two names in one step
// (RENAME_EXCHANGE; NFS, for one) the old product is set aside first, and a kill in between is mended by
// pl_atomic_dir_recover.
pl_status   pl_atomic_dir_commit(pl_atomic_dir *a, pl_err *err);
void        pl_atomic_dir_abort(pl_atomic_dir *a); // nothing after commit

// The product `path` takes the name `as` of the same folder, durably, and what stood there the name `old`, which
// nothing has. A kill at any instant leaves both whole, each under one of the three names; `as` is missing only where
// the file system cannot exchange two names in one step. On failure, too, both are there.
pl_status pl_path_succeed(const char *path, const char *as, const char *old, pl_err *err);

// If `path` is missing because a process died between the two renames of such a file system, puts the old product back.
// begin does this itself; readers of a product call it before they open. Cheap when path exists.
pl_status pl_atomic_dir_recover(const char *path, pl_err *err);

// ---- tests ----

// A step is one call that changes the disk: create, mkdir, write, fsync, rename, exchange, remove.
// The n-th step from now, and only it, fails with EIO (0 = never).
void     pl_io_fail_after(uint64_t n);
// The process kills itself (SIGKILL, nothing flushed) instead of doing the n-th step from now (0 = never).
void     pl_io_kill_after(uint64_t n);
// Steps so far.
uint64_t pl_io_count(void);
// As if the file system had no RENAME_EXCHANGE.
void     pl_io_no_exchange(bool on);

#endif

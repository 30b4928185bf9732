// The figures of metrics.jsonl in TensorBoard's form: an event file in the run's folder, so that `tensorboard --logdir
// runs` shows runs side by side.
//
//   file    events.out.tfevents.SECONDS.HOST.PID
//   record  u64 n | u32 mask(crc(n)) | payload[n] | u32 mask(crc(payload)), little-endian, with
//           crc = CRC-32C (RFC 3720, B.4), mask(c) = rotr(c, 15) + 0xa282ead8
//           (tensorflow/core/lib/io/record_writer.h)
//   payload an Event (tensorflow/core/util/event.proto): 1 wall_time, 2 step, 3 file_version,
//           5 summary {1 value {1 tag, 2 simple_value}}, 7 session_log {1 status}. The first holds "brain.Event:2", the
//           second START at step 0.
//
// Tags are the same for all kinds of drafters, so that their curves share a chart: train/loss, train/learning_rate,
// train/grad_norm, ...; eval_X is eval/X, documents_X and served_X likewise. An array's elements are TAG/1, TAG/2, ...
//
// The file holds exactly the lines of metrics.jsonl: a resumed run writes a file of a later name from the existing
// lines and empties the previous one. So each step appears once for every reader (TensorFlow's own way, another file
// that requests purging of later steps, leaves both to readers that do not purge), a record cut short by a kill is
// gone, and START makes a running TensorBoard drop what it had read. A running TensorBoard stays at a removed file but
// moves on from an empty one: empty files are removed one resume later.
#ifndef PL_TRAIN_EVENTS_H
#define PL_TRAIN_EVENTS_H

#include "kernels/base/status.h"
#include <stddef.h>

typedef struct pl_events {
    char *path; // NULL: not open
    int   fd;
} pl_events;

// Creates a file in dir with the events of these lines of metrics.jsonl; this run's older files there are emptied, its
// empty ones removed. dir/.stamps/events lists this run's files; without a list they are those with such a name that
// begin with those two records. Other tools' files, links and folders of that prefix stay. PL_E_IO, PL_E_MEMORY,
// PL_E_INPUT: a line that is no object.
pl_status pl_events_open(pl_events *e, const char *dir, const char *lines, size_t n, pl_err *err);
void      pl_events_close(pl_events *e); // does nothing if it is not open
// Appends one line.
pl_status pl_events_add(pl_events *e, const char *line, size_t n, pl_err *err);

#endif

// The same figures as metrics.jsonl in the form that TensorBoard reads: an event file in the run's folder, so that
// `tensorboard --logdir runs` shows runs side by side.
//
//   file    events.out.tfevents.SECONDS.HOST.PID
//   record  u64 n | u32 mask(crc(n)) | payload[n] | u32 mask(crc(payload)), little-endian, with
//           crc = CRC-32C (RFC 3720, B.4), mask(c) = rotr(c, 15) + 0xa282ead8
//           (tensorflow/core/lib/io/record_writer.h)
//   payload an Event (tensorflow/core/util/event.proto): 1 wall_time, 2 step, 3 file_version,
//           5 summary {1 value {1 tag, 2 simple_value}}, 7 session_log {1 status}. The first says "brain.Event:2", the
//           second START at step 0.
//
// Tags are one for all kinds of drafters, so that their curves share a chart: train/loss, train/learning_rate,
// train/grad_norm, ...; eval_X is eval/X, documents_X and served_X likewise. An array's elements are TAG/1, TAG/2, ...
//
// The file is what metrics.jsonl says, and nothing else: when a run goes on, a file of a later name is written anew
// from the lines that stand there, and the one before is emptied. So a step stands once whoever reads (TensorFlow's own
// way, another file that asks readers to purge the first one's later steps, leaves both to those who do not purge), a
// record that a kill cut short is gone, and START has a TensorBoard that is running forget what it had read. Such a one
// never leaves a file that was removed, but an empty one for the next: empty ones are removed one time later.
#ifndef PL_TRAIN_EVENTS_H
#define PL_TRAIN_EVENTS_H

#include "kernels/base/status.h"
#include <stddef.h>

typedef struct pl_events {
    char *path; // NULL: not open
    int   fd;
} pl_events;

// A new file in dir that holds what these lines of metrics.jsonl say; this run's older files there are emptied, its
// empty ones removed. dir/.stamps/events lists this run's files; where there is no list, they are those that have such
// a name and begin with those two records. Other tools' files, links and folders of that prefix stay.
// PL_E_IO, PL_E_MEMORY, PL_E_INPUT: a line that is no object.
pl_status pl_events_open(pl_events *e, const char *dir, const char *lines, size_t n, pl_err *err);
void      pl_events_close(pl_events *e); // one that is not open is fine
// One more line.
pl_status pl_events_add(pl_events *e, const char *line, size_t n, pl_err *err);

#endif

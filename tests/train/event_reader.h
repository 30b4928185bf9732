// Reads event files as TensorBoard does: framing, both checksums, and of each event what train/loop/events.h writes.
#ifndef PL_TEST_EVENT_READER_H
#define PL_TEST_EVENT_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct test_event {
    double  time;
    int64_t step;
    char    version[32], tag[96]; // "" where it says none
    int     session;              // 0: none
    float   value;                // of tag
} test_event;

uint32_t test_crc32c(const void *data, size_t n);

// One element a value of a summary (an event without values is one element). Returns how many; -1 where a record is cut
// short, a checksum is wrong or a field is of no kind that protobuf has.
int test_events_parse(test_event *out, int room, const uint8_t *data, size_t n);

// The only event file of a folder that is not empty, which must be sound; its name into `name`. At most one is empty,
// and its name is an earlier one.
int test_events_read(test_event *out, int room, const char *dir, char name[256]);

#endif

#define _GNU_SOURCE 1 // fstatat, dirfd
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "tests/train/event_reader.h"
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

// By table, of the reflected polynomial of Castagnoli: x^32 + x^28 + x^27 + x^26 + x^25 + x^23 + x^22 + x^20 + x^19 +
// x^18 + x^14 + x^13 + x^11 + x^10 + x^9 + x^8 + x^6 + 1.
uint32_t test_crc32c(const void *data, size_t n) {
    static const int power[] = {28, 27, 26, 25, 23, 22, 20, 19, 18, 14, 13, 11, 10, 9, 8, 6, 0};
    static uint32_t  table[256];
    uint32_t         polynomial = 0, crc = 0xffffffff;
    for (size_t i = 0; i < sizeof power / sizeof *power; i++)
        polynomial |= UINT32_C(1) << (31 - power[i]);
    for (uint32_t i = 0; i < 256 && !table[255]; i++) {
        table[i] = i;
        for (int k = 0; k < 8; k++)
            table[i] = table[i] & 1 ? table[i] >> 1 ^ polynomial : table[i] >> 1;
    }
    for (size_t i = 0; i < n; i++)
        crc = table[(crc ^ ((const uint8_t *)data)[i]) & 0xff] ^ crc >> 8;
    return crc ^ 0xffffffff;
}

typedef struct bytes {
    const uint8_t *p;
    size_t         n;
} bytes;

static bool take(bytes *b, size_t n, bytes *out) {
    if (n > b->n) return false;
    *out = (bytes){b->p, n};
    b->p += n;
    b->n -= n;
    return true;
}

static uint64_t fixed(bytes b) {
    uint64_t v = 0;
    for (size_t i = b.n; i-- > 0;)
        v = v << 8 | b.p[i];
    return v;
}

static bool varint(bytes *b, uint64_t *v) {
    bytes one;
    *v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (!take(b, 1, &one)) return false;
        *v |= (uint64_t)(*one.p & 0x7f) << shift;
        if (*one.p < 0x80) return true;
    }
    return false;
}

// The next field: its number, and its bytes or (wire type 0) its value.
static bool field(bytes *b, unsigned *number, bytes *in, uint64_t *value) {
    uint64_t key, n;
    if (!varint(b, &key)) return false;
    *number = (unsigned)(key >> 3);
    *in = (bytes){0};
    switch (key & 7) {
    case 0: return varint(b, value);
    case 1: return take(b, 8, in);
    case 2: return varint(b, &n) && take(b, n, in);
    case 5: return take(b, 4, in);
    default: return false;
    }
}

static void text(char *out, size_t room, bytes in) {
    snprintf(out, room, "%.*s", (int)in.n, (const char *)in.p);
}

static bool read_value(test_event *e, bytes b) {
    unsigned number;
    bytes    in;
    uint64_t v;
    while (b.n > 0) {
        if (!field(&b, &number, &in, &v)) return false;
        uint32_t bits = (uint32_t)fixed(in);
        if (number == 1) text(e->tag, sizeof e->tag, in);
        if (number == 2) memcpy(&e->value, &bits, 4);
    }
    return true;
}

static int read_event(test_event *out, int room, bytes b) {
    test_event e = {0};
    unsigned   number;
    bytes      in, summary = {0};
    uint64_t   v;
    int        n = 0;
    while (b.n > 0) {
        if (!field(&b, &number, &in, &v)) return -1;
        uint64_t bits = fixed(in);
        if (number == 1) memcpy(&e.time, &bits, 8);
        if (number == 2) e.step = (int64_t)v;
        if (number == 3) text(e.version, sizeof e.version, in);
        if (number == 5) summary = in;
        if (number == 7) {
            if (!field(&in, &number, &(bytes){0}, &v)) return -1;
            e.session = (int)v;
        }
    }
    while (summary.n > 0) {
        if (!field(&summary, &number, &in, &v) || number != 1 || n == room) return -1;
        out[n] = e;
        if (!read_value(&out[n++], in)) return -1;
    }
    if (n == 0 && room > 0) out[n++] = e;
    return n;
}

static bool checked(bytes b, bytes crc) {
    uint32_t c = test_crc32c(b.p, b.n);
    return (uint32_t)fixed(crc) == ((c >> 15) | (c << 17)) + 0xa282ead8u;
}

int test_events_parse(test_event *out, int room, const uint8_t *data, size_t n) {
    bytes b = {data, n}, length, length_crc, payload, payload_crc;
    int   count = 0;
    while (b.n > 0) {
        if (!take(&b, 8, &length) || !take(&b, 4, &length_crc) || !checked(length, length_crc)) return -1;
        if (!take(&b, fixed(length), &payload) || !take(&b, 4, &payload_crc) || !checked(payload, payload_crc))
            return -1;
        int more = read_event(out + count, room - count, payload);
        if (more < 0) return -1;
        count += more;
    }
    return count;
}

int test_events_read(test_event *out, int room, const char *dir, char name[256]) {
    DIR     *d = opendir(dir);
    int      files = 0, empty = 0;
    char     before[256] = "";
    uint8_t *data;
    size_t   n;
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        struct stat s;
        if (!strstr(e->d_name, "tfevents")) continue; // whatever stands around it
        assert_int_equal(fstatat(dirfd(d), e->d_name, &s, 0), 0);
        snprintf(s.st_size ? name : before, 256, "%s", e->d_name);
        *(s.st_size ? &files : &empty) += 1;
    }
    closedir(d);
    assert_true(files == 1 && empty <= 1 && strcmp(before, name) < 0);
    char *path = pl_path_join(dir, name);
    assert_int_equal(pl_file_read(path, &data, &n, 1 << 24, NULL), PL_OK);
    int count = test_events_parse(out, room, data, n);
    assert_true(count >= 2);
    // no byte may be another
    for (size_t i = 0; i < n; i += 7) {
        data[i] ^= 0x10;
        assert_int_equal(test_events_parse(&(test_event){0}, 0, data, n), -1);
        data[i] ^= 0x10;
    }
    pl_free(data);
    pl_free(path);
    return count;
}

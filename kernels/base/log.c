#define _GNU_SOURCE 1 // sigaction, isatty
#include "kernels/base/log.h"
#include "kernels/base/clock.h"
#include "kernels/base/hash.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { TEXT = 2048 };

static atomic_int      level = PL_LOG_NORMAL;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool     line_open; // a progress line stands on the terminal without its newline; written under `lock`

static _Atomic(FILE *) elsewhere; // of pl_log_to

// Hashes of the lines that pl_log_warn_once gave; behind the last place lines are repeated. Under `lock`.
static uint64_t given[256];
static int      n_given;

void pl_log_to(FILE *f) {
    pthread_mutex_lock(&lock);
    n_given = 0;
    pthread_mutex_unlock(&lock);
    atomic_store(&elsewhere, f);
}

// Whether what needs this level is said.
static bool heard(pl_log_level needed) {
    return atomic_load(&elsewhere) || atomic_load(&level) >= (int)needed;
}

void pl_log_set(pl_log_level l) {
    atomic_store(&level, (int)l);
}

// What is said may quote files: no control byte reaches the terminal, and a line stays one line.
static void clean(char *s) {
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f) *s = ' ';
}

static char first[TEXT]; // of pl_log_first, not yet given; under `lock`

// Under `lock`.
static void put_first(FILE *to) {
    if (*first) fprintf(to ? to : stderr, "%s\n", first);
    *first = 0;
}

void pl_log_first(const char *fmt, ...) {
    va_list ap;
    if (!heard(PL_LOG_NORMAL)) return;
    pthread_mutex_lock(&lock);
    va_start(ap, fmt);
    vsnprintf(first, sizeof first, fmt, ap);
    va_end(ap);
    clean(first);
    pthread_mutex_unlock(&lock);
}

void pl_log_first_now(void) {
    pthread_mutex_lock(&lock);
    put_first(atomic_load(&elsewhere));
    pthread_mutex_unlock(&lock);
}

static void say(const char *prefix, const char *fmt, va_list ap) {
    char text[TEXT];
    if (vsnprintf(text, sizeof text, fmt, ap) < 0) return;
    clean(text);
    pthread_mutex_lock(&lock);
    FILE *to = atomic_load(&elsewhere);
    put_first(to);
    fprintf(to ? to : stderr, "%s%s%s\n", line_open ? "\r\033[K" : "", prefix, text);
    if (to) fflush(to);
    line_open = false;
    pthread_mutex_unlock(&lock);
}

void pl_log(const char *fmt, ...) {
    if (!heard(PL_LOG_NORMAL)) return;
    va_list ap;
    va_start(ap, fmt);
    say("", fmt, ap);
    va_end(ap);
}

void pl_log_warn(const char *fmt, ...) {
    if (!heard(PL_LOG_QUIET)) return;
    va_list ap;
    va_start(ap, fmt);
    say("paceline: warning: ", fmt, ap);
    va_end(ap);
}

// Whether a line is one of those given; it is among them from now on.
static bool was_given(uint64_t line) {
    bool found = false;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n_given && !found; i++)
        found = given[i] == line;
    if (!found && n_given < (int)(sizeof given / sizeof *given)) given[n_given++] = line;
    pthread_mutex_unlock(&lock);
    return found;
}

void pl_log_warn_once(const char *fmt, ...) {
    char    text[TEXT];
    va_list ap;
    if (!heard(PL_LOG_QUIET)) return;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n >= 0 && !was_given(pl_hash(text, strlen(text)))) pl_log_warn("%s", text);
}

// Progress

static const double EVERY_TERMINAL = 0.2, EVERY_PLAIN = 10; // seconds between lines

static bool on_terminal(void) {
    const char *term = getenv("TERM");
    return !atomic_load(&elsewhere) && isatty(STDERR_FILENO) && !(term && strcmp(term, "dumb") == 0);
}

// A line that wraps cannot be rewritten with a carriage return: it is cut to the terminal's width.
static size_t columns(void) {
    struct winsize w;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 1 ? w.ws_col - 1u : 79;
}

static void put_time(char *out, size_t room, double seconds) {
    if (!(seconds < 3.6e8)) seconds = 3.6e8; // also what a stalled rate gives
    long s = (long)(seconds + 0.5);
    if (s < 3600)
        snprintf(out, room, "%ld:%02ld", s / 60, s % 60);
    else
        snprintf(out, room, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
}

// Appends to text, of which *n bytes are used; what does not fit is cut.
static void add(char text[TEXT], size_t *n, const char *fmt, va_list ap) {
    int more = vsnprintf(text + *n, TEXT - *n, fmt, ap);
    if (more > 0) *n = *n + (size_t)more < TEXT ? *n + (size_t)more : TEXT - 1;
}

PL_PRINTF(3, 4) static void addf(char text[TEXT], size_t *n, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    add(text, n, fmt, ap);
    va_end(ap);
}

static void show(const pl_progress *p, char text[TEXT]) {
    clean(text);
    pthread_mutex_lock(&lock);
    put_first(p->live ? NULL : atomic_load(&elsewhere));
    if (p->live) {
        size_t n = strlen(text), most = columns();
        if (n > most) {
            n = most;
            while (n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80) // not inside a UTF-8 sequence
                n--;
            text[n] = 0;
        }
        fprintf(stderr, "\r%s\033[K", text);
        fflush(stderr);
        line_open = true;
    } else {
        FILE *to = atomic_load(&elsewhere);
        fprintf(to ? to : stderr, "%s\n", text);
        if (to) fflush(to);
    }
    pthread_mutex_unlock(&lock);
}

void pl_progress_begin(pl_progress *p, const char *what, int64_t start_at, int64_t total) {
    double now = pl_now();
    *p = (pl_progress){.what = what, .total = total, .start = now, .last = now, .start_at = start_at};
    p->live = on_terminal();
}

void pl_progress_update(pl_progress *p, int64_t done, const char *fmt, ...) {
    if (!heard(PL_LOG_NORMAL)) return;
    double now = pl_now(), every = p->live ? EVERY_TERMINAL : EVERY_PLAIN;
    bool   last_of_live = p->live && p->total > 0 && done >= p->total; // the line that stays must be the full one
    if (now - p->last < every && !last_of_live) return;
    p->last = now;

    char   text[TEXT] = "", left[32];
    size_t n = 0;
    double spent = now - p->start, rate = spent > 0 ? (double)(done - p->start_at) / spent : 0;
    addf(text, &n, "%s:", p->what);
    if (p->total > 0)
        addf(text, &n, " %.1f%% %lld/%lld", 100 * (double)done / (double)p->total, (long long)done,
             (long long)p->total);
    else
        addf(text, &n, " %lld", (long long)done);
    if (rate > 0 && rate < 1)
        addf(text, &n, " %.1f s each", 1 / rate);
    else
        addf(text, &n, " %.*f/s", rate < 10 ? 2 : rate < 100 ? 1 : 0, rate);
    if (p->total > done && rate > 0) {
        put_time(left, sizeof left, (double)(p->total - done) / rate);
        addf(text, &n, " left %s", left);
    }
    if (fmt) {
        addf(text, &n, " ");
        va_list ap;
        va_start(ap, fmt);
        add(text, &n, fmt, ap);
        va_end(ap);
    }
    show(p, text);
}

void pl_progress_end(pl_progress *p) {
    pthread_mutex_lock(&lock);
    if (p->live && line_open) {
        fputc('\n', stderr);
        line_open = false;
    }
    pthread_mutex_unlock(&lock);
    // Elsewhere only work long enough to have been mentioned is said to be over.
    if (!p->live && p->last > p->start) {
        char spent[32];
        put_time(spent, sizeof spent, pl_now() - p->start);
        pl_log("%s: ended after %s", p->what, spent);
    }
    p->live = false;
    p->last = p->start;
}

// Stopping. Lock-free atomics instead of sig_atomic_t: other threads read them too.

static atomic_int stop_asked; // number of the first signal; 0: none
static atomic_int holds;

static const double CONFIRM = 1; // seconds that work under a hold has to end in before the request is confirmed

// One line by write alone: handlers call nothing that locks.
static void say_signal(int sig, const char *text) {
    const char *name = sig == SIGINT ? "SIGINT" : sig == SIGTERM ? "SIGTERM" : "SIGUSR1";
    const char *part[] = {atomic_load(&line_open) ? "\r\033[K" : "", "paceline: ", name, text, "\n"};
    char        line[160];
    size_t      n = 0;
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        size_t more = strlen(part[i]);
        memcpy(line + n, part[i], more);
        n += more;
    }
    if (write(STDERR_FILENO, line, n) < 0) return; // there is no other place to report it
}

static void on_stop(int sig) {
    int cause = errno, none = 0;
    if (atomic_compare_exchange_strong(&stop_asked, &none, sig) && atomic_load(&holds) > 0) {
        alarm((unsigned)CONFIRM);
        errno = cause;
        return;
    }
    say_signal(sig, ": ended at once");
    // The signal stays blocked until the handler returns, and then ends the process as it would have.
    signal(sig, SIG_DFL);
    raise(sig);
    errno = cause;
}

static void on_alarm(int sig) {
    (void)sig;
    int cause = errno;
    say_signal(atomic_load(&stop_asked), ": ends once the work in hand is done; a second signal ends it at once");
    errno = cause;
}

void pl_stop_install(void) {
    static const int ends[] = {SIGINT, SIGTERM, SIGUSR1}; // USR1: Slurm's warning before its time is up
    struct sigaction act;
    memset(&act, 0, sizeof act);
    act.sa_flags = SA_RESTART; // writes in progress go on: a request is no failure
    sigemptyset(&act.sa_mask);
    atomic_store(&stop_asked, 0);
    alarm(0);
    act.sa_handler = on_alarm;
    sigaction(SIGALRM, &act, NULL);
    act.sa_handler = on_stop;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        sigaction(ends[i], &act, NULL);
}

void pl_stop_hold(void) {
    atomic_fetch_add(&holds, 1);
}

void pl_stop_release(void) {
    atomic_fetch_sub(&holds, 1);
}

bool pl_stop_requested(void) {
    return atomic_load_explicit(&stop_asked, memory_order_relaxed) != 0;
}

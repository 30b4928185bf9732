// Where the static shared memory of kernels lies: __shared__ is storage of the thread that runs the block, a variable
// local to a function, which the program's own symbols name (_ZZ<kernel>E<variable>).
#include "tests/cuda/emulate/machine.h"
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <map>
#include <mutex>
#include <stdio.h>
#include <stdlib.h>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <unordered_map>
#include <vector>

namespace {
struct variable {
    size_t at, bytes; // in the module's thread-local block
};
struct module {
    uintptr_t                                               base = 0;
    std::unordered_map<const void *, std::vector<variable>> of;     // kernels
    std::vector<variable>                                   others; // of functions that kernels call
};
module        *the;
std::once_flag reading;

[[noreturn]] void unreadable(const char *what) {
    fprintf(stderr, "emulated device: shared memory cannot be found for a seed's sake: %s\n", what);
    abort();
}

struct search {
    const void *inside; // the module with this address
    uintptr_t   base;
    void       *storage; // of the calling thread
    bool        found;
};

int look(struct dl_phdr_info *info, size_t, void *arg) {
    search *s = static_cast<search *>(arg);
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) &p = info->dlpi_phdr[i];
        uintptr_t from = info->dlpi_addr + p.p_vaddr, at = (uintptr_t)s->inside;
        if (p.p_type == PT_LOAD && at >= from && at < from + p.p_memsz) s->found = true;
    }
    if (!s->found) return 0;
    s->base = info->dlpi_addr;
    s->storage = info->dlpi_tls_data;
    return 1;
}

search module_of(const void *p) {
    search s = {p, 0, NULL, false};
    dl_iterate_phdr(look, &s);
    return s;
}

void read_symbols(const uint8_t *file, uintptr_t base) {
    const ElfW(Ehdr) *head = (const ElfW(Ehdr) *)file;
    const ElfW(Shdr) *section = (const ElfW(Shdr) *)(file + head->e_shoff);
    std::multimap<std::string, const void *>     function; // static ones may share a name
    std::map<std::string, std::vector<variable>> local;
    for (int i = 0; i < head->e_shnum; i++) {
        if (section[i].sh_type != SHT_SYMTAB) continue;
        const char *names = (const char *)file + section[section[i].sh_link].sh_offset;
        const ElfW(Sym) *s = (const ElfW(Sym) *)(file + section[i].sh_offset);
        for (size_t k = 0; k < section[i].sh_size / sizeof *s; k++) {
            const char *name = names + s[k].st_name;
            int         type = ELF64_ST_TYPE(s[k].st_info);
            if (type == STT_FUNC && s[k].st_value) function.insert({name, (const void *)(base + s[k].st_value)});
            if (type == STT_TLS && strncmp(name, "_ZZ", 3) == 0 && strncmp(name, "_ZZL3run", 8) != 0 &&
                strstr(name, "pl_emu") == NULL) {
                std::string whole = name + 2; // Z<function>E<variable>
                local[whole].push_back({s[k].st_value, s[k].st_size});
            }
        }
    }
    for (auto &l : local) {
        bool known = false;
        for (size_t end = l.first.rfind('E'); end != std::string::npos && end > 0 && !known;
             end = l.first.rfind('E', end - 1)) {
            auto [f, last] = function.equal_range("_" + l.first.substr(0, end));
            for (known = f != last; f != last; ++f)
                for (auto &v : l.second)
                    the->of[f->second].push_back(v);
        }
        if (!known)
            for (auto &v : l.second)
                the->others.push_back(v);
    }
}

void read_module(const void *kernel) {
    static module m;
    Dl_info       of;
    the = &m;
    search s = module_of(kernel);
    if (!s.found || !dladdr(kernel, &of)) unreadable("no module has the kernel");
    the->base = s.base;
    bool        library = of.dli_fname && strstr(of.dli_fname, ".so");
    int         fd = open(library ? of.dli_fname : "/proc/self/exe", O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) unreadable("the program cannot be read");
    void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (p == MAP_FAILED) unreadable("the program cannot be mapped");
    read_symbols((const uint8_t *)p, s.base);
    munmap(p, (size_t)st.st_size);
    if (the->of.empty()) unreadable("the program has no symbols; do not strip it");
}
} // namespace

void pl_emu_spoil_static(const void *kernel) {
    static thread_local uint8_t *pl_emu_storage;
    std::call_once(reading, read_module, kernel);
    if (!pl_emu_storage) pl_emu_storage = (uint8_t *)module_of(kernel).storage;
    auto of = the->of.find(kernel);
    if (of != the->of.end())
        for (const variable &v : of->second)
            memset(pl_emu_storage + v.at, 0xff, v.bytes);
    for (const variable &v : the->others)
        memset(pl_emu_storage + v.at, 0xff, v.bytes);
}

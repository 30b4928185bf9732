// What -fsanitize=thread calls at each access, under names of this project, so that the counted kernels and a sanitizer
// (or tests/cuda/race.cc) can be in one program. Included before each counted source.
#ifndef PL_CUDA_PREDICT_CALLS_H
#define PL_CUDA_PREDICT_CALLS_H
extern "C" {
#define PL_COUNTED(name) void __tsan_##name(void *) __asm__("pl_counted_" #name);
PL_COUNTED(read1)
PL_COUNTED(read2)
PL_COUNTED(read4)
PL_COUNTED(read8)
PL_COUNTED(read16)
PL_COUNTED(write1)
PL_COUNTED(write2)
PL_COUNTED(write4)
PL_COUNTED(write8)
PL_COUNTED(write16)
PL_COUNTED(unaligned_read2)
PL_COUNTED(unaligned_read4)
PL_COUNTED(unaligned_read8)
PL_COUNTED(unaligned_read16)
PL_COUNTED(unaligned_write2)
PL_COUNTED(unaligned_write4)
PL_COUNTED(unaligned_write8)
PL_COUNTED(unaligned_write16)
PL_COUNTED(func_entry)
PL_COUNTED(func_exit)
PL_COUNTED(vptr_read)
#undef PL_COUNTED
void __tsan_read_range(void *, long) __asm__("pl_counted_read_range");
void __tsan_write_range(void *, long) __asm__("pl_counted_write_range");
void __tsan_init(void) __asm__("pl_counted_init");
void __tsan_vptr_update(void *, void *) __asm__("pl_counted_vptr_update");
}
#endif

// So much of NVIDIA's driver (libcuda.so.1) that cuDNN can finish plans for a GPU that is only described: it compiles
// their kernels, then has the driver load them, and keeps what it is given. Everything else says that there is no GPU.
#include <stddef.h>

enum { NO_DEVICE = 100 }; // CUDA_ERROR_NO_DEVICE

static int something;

int cuDeviceGetCount(int *n);
int cuDriverGetVersion(int *version);
int cuGetErrorString(int e, const char **text);
int cuGetErrorName(int e, const char **text);
int cuLibraryLoadData(void **library, const void *code, void *o, void **ov, unsigned n, void *p, void **pv, unsigned m);
int cuLibraryGetKernel(void **kernel, void *library, const char *name);
int cuLibraryUnload(void *library);
int cuKernelGetAttribute(int *value, int name, void *kernel, int device);
int cuKernelSetAttribute(int name, int value, void *kernel, int device);

int cuDeviceGetCount(int *n) {
    *n = 0;
    return 0;
}

int cuDriverGetVersion(int *version) {
    *version = 13000;
    return 0;
}

int cuGetErrorString(int e, const char **text) {
    *text = e == NO_DEVICE ? "no GPU: a stand-in for the driver" : "unknown";
    return 0;
}

int cuGetErrorName(int e, const char **text) {
    return cuGetErrorString(e, text);
}

int cuLibraryLoadData(void **library, const void *code, void *o, void **ov, unsigned n, void *p, void **pv,
                      unsigned m) {
    (void)o, (void)ov, (void)n, (void)p, (void)pv, (void)m;
    *library = &something;
    return code ? 0 : NO_DEVICE;
}

int cuLibraryGetKernel(void **kernel, void *library, const char *name) {
    *kernel = &something;
    return library && name ? 0 : NO_DEVICE;
}

int cuLibraryUnload(void *library) {
    return library ? 0 : NO_DEVICE;
}

int cuKernelGetAttribute(int *value, int name, void *kernel, int device) {
    (void)name, (void)kernel, (void)device;
    *value = 0;
    return 0;
}

int cuKernelSetAttribute(int name, int value, void *kernel, int device) {
    (void)name, (void)value, (void)kernel, (void)device;
    return 0;
}

// What must be there to be found, and is not called or may fail.
#define ABSENT(X)                                                                                                      \
    X(cuCtxGetCurrent)                                                                                                 \
    X(cuCtxGetDevice)                                                                                                  \
    X(cuCtxGetLimit)                                                                                                   \
    X(cuCtxPopCurrent)                                                                                                 \
    X(cuCtxPushCurrent)                                                                                                \
    X(cuDeviceGet)                                                                                                     \
    X(cuDeviceGetAttribute)                                                                                            \
    X(cuDevicePrimaryCtxRelease)                                                                                       \
    X(cuDevicePrimaryCtxReset)                                                                                         \
    X(cuDevicePrimaryCtxRetain)                                                                                        \
    X(cuFuncGetAttribute)                                                                                              \
    X(cuFuncSetAttribute)                                                                                              \
    X(cuInit)                                                                                                          \
    X(cuKernelGetFunction)                                                                                             \
    X(cuLaunchCooperativeKernel)                                                                                       \
    X(cuLaunchKernel)                                                                                                  \
    X(cuLaunchKernelEx)                                                                                                \
    X(cuLibraryLoadFromFile)                                                                                           \
    X(cuLinkAddData)                                                                                                   \
    X(cuLinkAddData_v2)                                                                                                \
    X(cuLinkAddFile_v2)                                                                                                \
    X(cuLinkComplete)                                                                                                  \
    X(cuLinkCreate)                                                                                                    \
    X(cuLinkCreate_v2)                                                                                                 \
    X(cuLinkDestroy)                                                                                                   \
    X(cuMemcpyDtoH_v2)                                                                                                 \
    X(cuModuleGetFunction)                                                                                             \
    X(cuModuleGetGlobal_v2)                                                                                            \
    X(cuModuleLoadData)                                                                                                \
    X(cuModuleLoadDataEx)                                                                                              \
    X(cuModuleLoadFatBinary)                                                                                           \
    X(cuModuleUnload)                                                                                                  \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor)                                                                     \
    X(cuOccupancyMaxPotentialClusterSize)                                                                              \
    X(cuStreamGetCtx)                                                                                                  \
    X(cuStreamGetGreenCtx)                                                                                             \
    X(cuStreamSynchronize)
#define X(name)                                                                                                        \
    int name(void);                                                                                                    \
    int name(void) {                                                                                                   \
        return NO_DEVICE;                                                                                              \
    }
ABSENT(X)
#undef X

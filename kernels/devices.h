// Devices by name, as --device takes them. A new one is a backend (kernels/backend.h) and a line of devices.def: all
// code that computes on a context, with tensors in the backend's memory, then runs on it.
#ifndef PL_DEVICES_H
#define PL_DEVICES_H

#include "kernels/backend.h"

extern const char pl_devices_syntax[]; // "auto|cuda[:N]|cpu"

// Opens a device by name. "auto": a GPU if one can be used, else the CPU. PL_E_USAGE: an unknown name;
// PL_E_UNSUPPORTED: the backend cannot be opened, with its error.
pl_status pl_device_open(const pl_backend **out, const char *name, pl_err *err);

// Returns the bytes that can still be taken of a device's own memory; INFINITY of the host's.
double pl_device_room(const pl_backend *be);
// Returns the free bytes of a GPU (kernels/cuda/device_cuda.c).
double pl_backend_cuda_room(const pl_backend *be);

// Returns the name, without a number, of the device that computes in this arithmetic (pl_backend): the last of the list
// whose name is a part of it, else the CPU's.
const char *pl_device_of(const char *arithmetic);

#endif

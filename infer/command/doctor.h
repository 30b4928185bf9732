// `paceline doctor`: what this build and this machine offer.
#ifndef PL_DOCTOR_H
#define PL_DOCTOR_H

#include "infer/cli/cli.h"

extern const pl_command pl_command_doctor;

#endif

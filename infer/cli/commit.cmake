# Run at every build: writes OUT, which is pl_commit (infer/cli/machine.h) of the commit that SOURCE is at, only where
# that changed. So what is measured names its commit, also where nobody configured anew; after a commit one file is
# compiled and all is linked again. Where git does not answer (a tarball, another user's folder) OUT stays as it is.
#   cmake -DGIT=git -DSOURCE=folder -DOUT=commit.c -P commit.cmake
set(commit unknown)
if(GIT)
  execute_process(COMMAND ${GIT} rev-parse --short=12 HEAD WORKING_DIRECTORY ${SOURCE}
    RESULT_VARIABLE failed OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  # Without its lock: somebody may be committing.
  execute_process(COMMAND ${GIT} --no-optional-locks status --porcelain --untracked-files=no WORKING_DIRECTORY ${SOURCE}
    OUTPUT_VARIABLE changed ERROR_QUIET)
  if(failed)
    set(commit unknown)
  elseif(changed)
    string(APPEND commit -dirty)
  endif()
endif()
set(text "#include \"infer/cli/machine.h\"\n\nconst char *pl_commit(void) {\n    return \"${commit}\";\n}\n")
set(before "")
if(EXISTS ${OUT})
  file(READ ${OUT} before)
endif()
if(NOT before STREQUAL text AND NOT (before AND commit STREQUAL unknown))
  file(WRITE ${OUT} "${text}")
endif()

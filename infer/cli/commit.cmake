# Run at every build: writes OUT, which is pl_commit (infer/cli/machine.h) of the commit that SOURCE is at, only where that
# changed. So what is measured names its commit, also where nobody configured anew, and nothing else is compiled again.
#   cmake -DGIT=git -DSOURCE=folder -DOUT=commit.c -P commit.cmake
set(commit unknown)
if(GIT)
  execute_process(COMMAND ${GIT} describe --always --dirty --abbrev=12 WORKING_DIRECTORY ${SOURCE}
    RESULT_VARIABLE failed OUTPUT_VARIABLE told OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT failed)
    set(commit ${told})
  endif()
endif()
set(text "#include \"infer/cli/machine.h\"\n\nconst char *pl_commit(void) {\n    return \"${commit}\";\n}\n")
set(before "")
if(EXISTS ${OUT})
  file(READ ${OUT} before)
endif()
if(NOT before STREQUAL text)
  file(WRITE ${OUT} "${text}")
endif()

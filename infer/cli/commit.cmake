# Run at every build: writes OUT with the commit that SOURCE is at, only where that changed, so that no more is compiled
# again than infer/cli/machine.c. What is measured names its commit, also where nobody configured anew after a pull.
#   cmake -DGIT=git -DSOURCE=folder -DOUT=commit.h -P commit.cmake
set(commit unknown)
if(GIT)
  execute_process(COMMAND ${GIT} describe --always --dirty --abbrev=12 WORKING_DIRECTORY ${SOURCE}
    RESULT_VARIABLE failed OUTPUT_VARIABLE told OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT failed)
    set(commit ${told})
  endif()
endif()
set(text "#define PACELINE_COMMIT \"${commit}\"\n")
set(before "")
if(EXISTS ${OUT})
  file(READ ${OUT} before)
endif()
if(NOT before STREQUAL text)
  file(WRITE ${OUT} "${text}")
endif()

# How every file is compiled. Included once, by the top CMakeLists.txt.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
# CHECK stays on in release builds by itself; assert() of libraries does not matter to us.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g1")

# Libraries are part of the plug-in that holds the CUDA code (docs/decisions/0005).
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

set(COPSE_SANITIZE "" CACHE STRING "sanitizers to build with: '', 'address,undefined' or 'thread'")

find_program(CCACHE ccache)
if(CCACHE)
  # The build folder is no part of the key, so that presets and fresh clones share results.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} ${CCACHE})
endif()
find_program(MOLD mold)
if(MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# Multiply-add is fused only where the code says so: the same rows must give the same bits in
# every batch shape and on every vector width (docs/decisions/0002-one-order-of-summation.md).
set(host_options -ffp-contract=off -fno-omit-frame-pointer)
add_compile_options(
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wconversion;-Wshadow;-Werror;${host_options}>"
  # nvcc's own stubs do not pass -Wconversion.
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wshadow,-Werror>")
if(COPSE_SANITIZE)
  add_compile_options(-fsanitize=${COPSE_SANITIZE} -fno-sanitize-recover=all -g1)
  add_link_options(-fsanitize=${COPSE_SANITIZE})
  if(COPSE_SANITIZE MATCHES "undefined")
    # This check opens a pipe at each virtual call into an uninstrumented library (spdlog, fmt) and
    # takes the lack of descriptors, which a gateway test brings about, for a wrong object.
    add_compile_options(-fno-sanitize=vptr)
  endif()
  if(COPSE_SANITIZE MATCHES "thread")
    # The thread sanitizer knows no fences; the loop's own queue is guarded by a mutex as well.
    add_compile_definitions(BOOST_ASIO_DISABLE_FENCED_BLOCK)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Its flow analysis reports false positives in instrumented standard containers.
    add_compile_options(-Wno-error=maybe-uninitialized -Wno-error=stringop-overflow)
  endif()
endif()

# A fuzzer finds its way by coverage, so the libraries are instrumented too (tests/fuzz).
option(COPSE_FUZZ "build the fuzz targets; needs clang" OFF)
if(COPSE_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

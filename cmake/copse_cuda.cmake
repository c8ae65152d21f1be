# Whether and how CUDA is built. Included once, by the top CMakeLists.txt.
#   COPSE_CUDA=AUTO  if nvcc is found and no sanitizer is on (they do not know device memory)
set(COPSE_CUDA "AUTO" CACHE STRING "build for GPUs: AUTO, ON or OFF")
set(COPSE_CUDA_TARGETS "90a;120" CACHE STRING "compute capabilities to compile for; 80 and later")
set(COPSE_HAS_CUDA OFF)
find_program(COPSE_NVCC nvcc HINTS /usr/local/cuda/bin)
if(COPSE_CUDA STREQUAL "ON" AND NOT COPSE_NVCC)
  message(FATAL_ERROR "COPSE_CUDA is ON, but there is no nvcc on the path or in /usr/local/cuda/bin")
endif()
if(COPSE_CUDA STREQUAL "ON" OR (COPSE_CUDA STREQUAL "AUTO" AND COPSE_NVCC AND NOT COPSE_SANITIZE))
  set(COPSE_HAS_CUDA ON)
  set(CMAKE_CUDA_COMPILER ${COPSE_NVCC})
  set(CMAKE_CUDA_ARCHITECTURES OFF)  # spelt out below: wgmma assembles for compute_90a alone
  enable_language(CUDA)
  find_package(CUDAToolkit 12.8 REQUIRED)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has it
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()
  set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -DNDEBUG -lineinfo")
  if(CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
  endif()
  set(COPSE_CUDA_GENCODE "")
  foreach(target ${COPSE_CUDA_TARGETS})
    list(APPEND COPSE_CUDA_GENCODE -gencode=arch=compute_${target},code=sm_${target})
  endforeach()
endif()
message(STATUS "copse: CUDA ${COPSE_HAS_CUDA} (targets ${COPSE_CUDA_TARGETS})")

# copse_cuda_library(copse_kernels_cuda SOURCES a.cu b.cpp DEPS ...)
function(copse_cuda_library name)
  copse_library(${name} ${ARGN})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${name} PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:${COPSE_CUDA_GENCODE} --threads=2 -Werror=all-warnings
      --expt-relaxed-constexpr>)
  target_link_libraries(${name} PUBLIC CUDA::cudart)
endfunction()

# A test or benchmark with CUDA sources of its own.
function(copse_cuda_sources name)
  target_compile_options(${name} PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:${COPSE_CUDA_GENCODE} -Werror=all-warnings --expt-relaxed-constexpr>)
endfunction()

# Four ways to declare a target. Each names its DEPS one by one: that list is the architecture.
include(GoogleTest)

# copse_library(copse_base SOURCES a.cpp b.cpp DEPS copse_other PkgConfig::ZMQ)
function(copse_library name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS" ${ARGN})
  if(A_SOURCES)
    add_library(${name} STATIC ${A_SOURCES})
    target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
    target_link_libraries(${name} PUBLIC ${A_DEPS})
  else()
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE ${CMAKE_SOURCE_DIR})
    target_link_libraries(${name} INTERFACE ${A_DEPS})
  endif()
endfunction()

# copse_program(copse-worker SOURCES main.cpp DEPS copse_worker)      binary: build/copse-worker
function(copse_program name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  target_link_libraries(${name} PRIVATE ${A_DEPS})
endfunction()

# copse_test(base_test SOURCES result_test.cpp DEPS copse_base)       one program per folder
#   PREFIX p.   is put before the name of each test, so that ctest -R can select a kind
#   TIMEOUT s   per test, 60 if not given;  SERIAL: never beside another test (it times things)
function(copse_test name)
  cmake_parse_arguments(A "SERIAL" "PREFIX;TIMEOUT" "SOURCES;DEPS" ${ARGN})
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 60)
  endif()
  if(COPSE_SANITIZE)  # instrumented arithmetic is ten times slower and more
    math(EXPR A_TIMEOUT "5 * ${A_TIMEOUT}")
  endif()
  add_executable(${name} ${A_SOURCES})
  target_link_libraries(${name} PRIVATE ${A_DEPS} GTest::gmock GTest::gtest GTest::gtest_main)
  set(properties TIMEOUT ${A_TIMEOUT})
  if(A_SERIAL)
    list(APPEND properties RUN_SERIAL TRUE)
  endif()
  gtest_discover_tests(${name} TEST_PREFIX "${A_PREFIX}" DISCOVERY_MODE PRE_TEST
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} PROPERTIES ${properties})
endfunction()

# copse_bench(linear_bench SOURCES linear_bench.cpp DEPS ...)         built, not run by ctest
function(copse_bench name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  target_link_libraries(${name} PRIVATE ${A_DEPS} benchmark::benchmark)
endfunction()

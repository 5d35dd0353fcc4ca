# How every folder is built: larder_folder(NAME deps...) makes the library larder_NAME from the
# folder's *.cc, with LARDER_TESTS one test program NAME_test from its *_test.cc, and with
# LARDER_FUZZ one libFuzzer program from each *_fuzz.cc. A folder of several subjects has rooms,
# each built like a folder: larder_folder(NAME/ROOM deps...) in NAME/ROOM makes larder_NAME_ROOM;
# larder_rooms(NAME ROOM...) in NAME, lowest first, adds them, and larder_NAME stands for all of
# them.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)

# No global -march: one binary runs on any x86-64; kernels/ picks the instruction set at start.
# -ffp-contract=off: a fused multiply-add happens where the source says fma, nowhere else, so that
# every instruction set gives the same bits (architecture: batch- and placement-invariant
# arithmetic).
add_library(larder_options INTERFACE)
target_compile_options(larder_options INTERFACE -Wall -Wextra -Wshadow
  -Wno-missing-field-initializers
  # That threads' fields lie on lines apart is asserted; both compilers define it here
  -Wno-invalid-offsetof
  -ffp-contract=off -fno-math-errno -fno-omit-frame-pointer)
target_include_directories(larder_options INTERFACE ${PROJECT_SOURCE_DIR})
target_link_libraries(larder_options INTERFACE Threads::Threads fmt::fmt)
if(LARDER_WERROR)
  target_compile_options(larder_options INTERFACE -Werror)
endif()
if(LARDER_SANITIZE)
  target_compile_options(larder_options INTERFACE -fsanitize=${LARDER_SANITIZE} -g1
      -fno-sanitize-recover=all)
  target_link_options(larder_options INTERFACE -fsanitize=${LARDER_SANITIZE})
  find_program(LARDER_LLD ld.lld)
  if(LARDER_LLD AND CMAKE_CXX_COMPILER_ID STREQUAL Clang)  # links a test in a fifth of ld's time
    target_link_options(larder_options INTERFACE -fuse-ld=lld)
  endif()
endif()

if(LARDER_TESTS)
  enable_testing()
  include(GoogleTest)
  find_package(GTest REQUIRED)
endif()

# These are parsed once for all targets that are compiled with the same options, however few files a
# room has: for tests and cold code unless LARDER_PCH is none, for the rest where it is all (CI's
# sanitizer builds). scripts/check_headers.py sees to it that nobody relies on it. Not what GCC's
# release builds compile at -O3: with them GCC 12 then sees array bounds broken in std::string where
# they are not.
set(larder_code_headers <algorithm> <atomic> <cstdint> <functional> <memory> <optional> <span>
  <string> <vector> <fmt/format.h>
  <nlohmann/json.hpp>)
set(larder_node_headers ${larder_code_headers} <CLI/CLI.hpp> <spdlog/spdlog.h>)
set(larder_node_header_libraries spdlog::spdlog)
set(larder_test_header_libraries GTest::gtest)
set(larder_test_headers ${larder_code_headers} <gtest/gtest.h>)

# KIND: code, node, test; the options of `target` are part of what must be the same. COLD: tests and
# what larder_cold_folders names.
function(larder_precompiled target kind cold)
  if(LARDER_PCH STREQUAL none OR NOT (LARDER_PCH STREQUAL all OR cold))
    return()
  endif()
  get_target_property(options ${target} COMPILE_OPTIONS)
  string(SHA1 key "${kind} ${options}")
  string(SUBSTRING ${key} 0 8 key)
  set(shared larder_pch_${kind}_${key})
  if(NOT TARGET ${shared})
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/${shared}.cc CONTENT "")  # a library wants one file
    add_library(${shared} OBJECT ${PROJECT_BINARY_DIR}/${shared}.cc)
    target_link_libraries(${shared} PRIVATE larder_options ${larder_${kind}_header_libraries})
    if(options)
      target_compile_options(${shared} PRIVATE ${options})
    endif()
    target_precompile_headers(${shared} PRIVATE ${larder_${kind}_headers})
  endif()
  # What these define is part of it, too
  target_link_libraries(${target} PRIVATE ${larder_${kind}_header_libraries})
  target_precompile_headers(${target} REUSE_FROM ${shared})
endfunction()

# Where compiling takes longer than running: tests everywhere, and in builds with sanitizers all
# that surrounds the engine, but for what runs for each token.
if(LARDER_SANITIZE)
  set(larder_quick -O0)
  set(larder_quick_folders node serving pipeline/manifest pipeline/plan)
  set(larder_busy_folders serving/answer serving/constraint serving/grammar serving/sampling
      serving/generation)
else()
  set(larder_quick $<$<CONFIG:Release>:-O0>)
  set(larder_quick_folders)
  set(larder_busy_folders)
endif()
# Tests that run for longer than their compilation, and those that take longest with sanitizers.
set(larder_busy_tests pipeline/scheduler serving/answer)
set(larder_long_tests pipeline/engine pipeline/scheduler model/reference serving/answer)
# What runs at the start, for a person or now and then: -O1 compiles it in two thirds of -O3's time,
# and with the headers above in half of it. Not its files of the data path, nor what reads requests
# and writes answers.
set(larder_cold_folders node pipeline/chain pipeline/engine pipeline/kv_store pipeline/manifest
    pipeline/plan pipeline/stage model/chat model/config model/families model/layer serving/batch
    serving/history serving/metrics serving/stored)

# Most of a file's compilation is its headers, and the same thousand inline functions in each file
# that includes CLI11, JSON, TOML, Asio or gtest: with LARDER_UNITY up to this many files are one.
# Not the data path's, which are compiled as they are read.
set(larder_unity_folders node serving pipeline model rdma)
set(larder_unity_files 12)

# As few units as they fit in, of the same size.
function(larder_unity target files)
  list(LENGTH files count)
  math(EXPR units "(${count} + ${larder_unity_files} - 1) / ${larder_unity_files}")
  if(units GREATER 0)
    math(EXPR size "(${count} + ${units} - 1) / ${units}")
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${size})
  endif()
endfunction()

function(larder_rooms name)
  # What a room's fuzzer runs through are all rooms below it: coverage of these guides it too. It
  # costs loops their time three times over, so rooms above the last fuzzer go without.
  set(lower)
  set(guiding)
  foreach(room ${ARGN})
    list(APPEND lower ${room})
    file(GLOB fuzzers CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${room}/*_fuzz.cc)
    if(fuzzers)
      set(guiding ${lower})
    endif()
  endforeach()
  foreach(room ${ARGN})
    set(larder_guides_fuzzers FALSE)
    if(room IN_LIST guiding)
      set(larder_guides_fuzzers TRUE)
    endif()
    add_subdirectory(${room})
  endforeach()
  add_library(larder_${name} INTERFACE)
  list(TRANSFORM ARGN PREPEND larder_${name}_)
  target_link_libraries(larder_${name} INTERFACE ${ARGN})
endfunction()

function(larder_folder path)
  string(REPLACE "/" "_" name ${path})
  string(REPLACE "/" "." test_prefix ${path})
  string(REGEX REPLACE "/.*" "" folder ${path})
  list(TRANSFORM ARGN REPLACE "/" "_")
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "(_test|_fuzz|/main|_stress)\\.cc$")
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  file(GLOB fuzzers CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_fuzz.cc)
  list(TRANSFORM ARGN PREPEND larder_ OUTPUT_VARIABLE deps)
  set(cold FALSE)
  if(sources)
    add_library(larder_${name} STATIC ${sources})
    target_link_libraries(larder_${name} PUBLIC larder_options ${deps})
    set(datapath ${sources})
    list(FILTER datapath INCLUDE REGEX "_datapath\\.cc$")
    if((folder IN_LIST larder_quick_folders OR path IN_LIST larder_quick_folders)
        AND NOT path IN_LIST larder_busy_folders)
      target_compile_options(larder_${name} PRIVATE ${larder_quick})
    elseif(NOT LARDER_SANITIZE
        AND (folder IN_LIST larder_cold_folders OR path IN_LIST larder_cold_folders))
      set(cold TRUE)
      target_compile_options(larder_${name} PRIVATE $<$<CONFIG:Release>:-O1>)
      set_source_files_properties(${datapath} PROPERTIES COMPILE_OPTIONS $<$<CONFIG:Release>:-O3>
          SKIP_PRECOMPILE_HEADERS ON)
    endif()
    if(LARDER_UNITY AND folder IN_LIST larder_unity_folders)
      set_source_files_properties(${datapath} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
      set(bundled ${sources})
      list(REMOVE_ITEM bundled ${datapath})
      larder_unity(larder_${name} "${bundled}")
    endif()
  else()
    add_library(larder_${name} INTERFACE)
    target_link_libraries(larder_${name} INTERFACE larder_options ${deps})
  endif()
  if(LARDER_TESTS AND tests)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE larder_${name} GTest::gtest GTest::gtest_main)
    if(path IN_LIST larder_busy_tests)
      target_compile_options(${name}_test PRIVATE $<$<CONFIG:Release>:-O1>)
    else()
      target_compile_options(${name}_test PRIVATE ${larder_quick})
    endif()
    if(LARDER_UNITY)
      set_target_properties(${name}_test PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    endif()
    larder_precompiled(${name}_test test TRUE)
    target_compile_definitions(${name}_test PRIVATE
      LARDER_SOURCE_DIR="${PROJECT_SOURCE_DIR}" LARDER_BINARY_DIR="${PROJECT_BINARY_DIR}")
    if(LARDER_SANITIZE)  # a process for each test costs minutes of starts
      add_test(NAME ${test_prefix} COMMAND ${name}_test --gtest_brief=1)
      set_tests_properties(${test_prefix} PROPERTIES TIMEOUT 900)
      if(path IN_LIST larder_long_tests)
        set_tests_properties(${test_prefix} PROPERTIES COST 120)  # begins early
      endif()
    else()
      gtest_discover_tests(${name}_test TEST_PREFIX "${test_prefix}." DISCOVERY_TIMEOUT 120
          PROPERTIES TIMEOUT 300)
    endif()
  endif()
  # Run: NAME_fuzz -max_total_time=60 -malloc_limit_mb=64 NEW_CORPUS FOLDER/fuzz/NAME
  if(LARDER_FUZZ AND sources AND (fuzzers OR larder_guides_fuzzers))
    target_compile_options(larder_${name} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
  if(sources AND folder STREQUAL node)
    larder_precompiled(larder_${name} node ${cold})
  elseif(sources)
    larder_precompiled(larder_${name} code ${cold})
  endif()
  if(LARDER_FUZZ AND fuzzers)
    foreach(source ${fuzzers})
      get_filename_component(fuzzer ${source} NAME_WE)
      add_executable(${fuzzer} ${source})
      target_compile_options(${fuzzer} PRIVATE -fsanitize=fuzzer)
      target_link_options(${fuzzer} PRIVATE -fsanitize=fuzzer)
      target_compile_definitions(${fuzzer} PRIVATE LARDER_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
      target_link_libraries(${fuzzer} PRIVATE larder_${name})
    endforeach()
  endif()
endfunction()

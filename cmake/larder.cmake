# How every folder is built: larder_folder(NAME deps...) makes the library larder_NAME from the
# folder's *.cc, and with LARDER_TESTS one test program NAME_test from its *_test.cc.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)

# No global -march: one binary runs on any x86-64; kernels/ picks the instruction set at start.
# -ffp-contract=off: a fused multiply-add happens where the source says fma, nowhere else, so that
# every instruction set gives the same bits (architecture: batch- and placement-invariant arithmetic).
add_library(larder_options INTERFACE)
target_compile_options(larder_options INTERFACE -Wall -Wextra -Wshadow -Wno-missing-field-initializers
  -ffp-contract=off -fno-math-errno -fno-omit-frame-pointer)
target_include_directories(larder_options INTERFACE ${PROJECT_SOURCE_DIR})
target_link_libraries(larder_options INTERFACE Threads::Threads fmt::fmt)
if(LARDER_WERROR)
  target_compile_options(larder_options INTERFACE -Werror)
endif()
if(LARDER_SANITIZE)
  target_compile_options(larder_options INTERFACE -fsanitize=${LARDER_SANITIZE} -g -fno-sanitize-recover=all)
  target_link_options(larder_options INTERFACE -fsanitize=${LARDER_SANITIZE})
endif()

if(LARDER_TESTS)
  enable_testing()
  include(GoogleTest)
  find_package(GTest REQUIRED)
endif()

function(larder_folder name)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "(_test|_fuzz|/main|_stress)\\.cc$")
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(TRANSFORM ARGN PREPEND larder_ OUTPUT_VARIABLE deps)
  if(sources)
    add_library(larder_${name} STATIC ${sources})
    target_link_libraries(larder_${name} PUBLIC larder_options ${deps})
  else()
    add_library(larder_${name} INTERFACE)
    target_link_libraries(larder_${name} INTERFACE larder_options ${deps})
  endif()
  if(LARDER_TESTS AND tests)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE larder_${name} GTest::gtest GTest::gtest_main)
    target_compile_definitions(${name}_test PRIVATE
      LARDER_SOURCE_DIR="${PROJECT_SOURCE_DIR}" LARDER_BINARY_DIR="${PROJECT_BINARY_DIR}")
    gtest_discover_tests(${name}_test TEST_PREFIX "${name}." DISCOVERY_TIMEOUT 120 PROPERTIES TIMEOUT 300)
  endif()
endfunction()

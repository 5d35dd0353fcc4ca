// Test support: files that are not in the tree (published vocabularies, templates, dumps of real
// machines). They lie below LARDER_TEST_DATA, by default ../shared/data beside the repository. A
// test that needs a missing file is skipped with one fixed wording, by which scripts/count_tests.py
// groups. Included by tests only.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace larder {

inline std::string TestData(const std::string& name) {
  const char* root = std::getenv("LARDER_TEST_DATA");
  return std::filesystem::path(root != nullptr ? root : LARDER_SOURCE_DIR "/../shared/data") / name;
}

}  // namespace larder

#define LARDER_NEEDS_TEST_DATA(path) \
  if (!std::filesystem::exists(path)) GTEST_SKIP() << (path) << " is not here (LARDER_TEST_DATA)"

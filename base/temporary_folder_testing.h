// Test support: a temporary folder of one test, removed when the test ends. Included by tests only.
#pragma once

#include <gtest/gtest.h>

#include "base/scratch_folder.h"

namespace larder {

class TemporaryFolder : public ScratchFolder {
 public:
  TemporaryFolder() : ScratchFolder("larder-test", testing::TempDir()) {}
};

}  // namespace larder

#include "rdma/common/local_endpoint.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>

#include "base/error_testing.h"
#include "rdma/common/local_endpoint_testing.h"

namespace larder::rdma::inline common {
namespace {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(LocalName, AFileNameAndBack) {
  EXPECT_EQ(FileOfName("larder/my rack+1/a-weights.0_"), "larder+my%20rack%2B1+a-weights.0_");
  for (const std::string name :
       {"larder/a/b", "a b", "100%", "+/+", "\xc3\xa4\n", "../x", "%2", "."})
    EXPECT_EQ(NameOfFile(FileOfName(name)), name);
  EXPECT_EQ(FileOfName("../../etc/x").find('/'), std::string::npos)
      << "a name must not lead out of the folder";
  for (const std::string odd : {"%", "%2", "%zz", "%00"})
    NameOfFile(odd);  // another program's file
}

TEST(LocalName, TooLongIsAnErrorThatNamesTheLimit) {
  EXPECT_TRUE(Has(ErrorOf([] { AddressOf(std::string(101, 'x'), ""); }), "100")) << "abstract";
  EXPECT_EQ(AddressOf(std::string(100, 'x'), "").path, "");
  EXPECT_EQ(AddressOf(std::string(95, 'x'), "/run/larder").path.size(), 107);
  EXPECT_TRUE(Has(ErrorOf([] { AddressOf(std::string(96, 'x'), "/run/larder"); }), "107"));
}

TEST(RuntimeFolder, IsSystemdsAndNobodyElses) {
  {
    const TestRuntimeFolder folder;
    EXPECT_EQ(RuntimeFolder(), folder.path());
    setenv("RUNTIME_DIRECTORY", (folder.path() + ":/run/other").c_str(), 1);
    EXPECT_EQ(RuntimeFolder(), folder.path());
  }
  {
    const TestRuntimeFolder open(0777);
    EXPECT_TRUE(Has(ErrorOf([] { RuntimeFolder(); }), "mode 777; expected"))
        << ErrorOf([] { RuntimeFolder(); });
  }
  setenv("RUNTIME_DIRECTORY", "/nowhere/at/all", 1);
  EXPECT_TRUE(Has(ErrorOf([] { RuntimeFolder(); }), "/nowhere/at/all"));
  unsetenv("RUNTIME_DIRECTORY");
}

}  // namespace
}  // namespace larder::rdma::common

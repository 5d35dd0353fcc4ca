#include "node/simulate/workload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/error_testing.h"
#include "base/temporary_folder_testing.h"

namespace larder::node::inline simulate {
namespace {

TEST(Workload, IsThatOfItsSeed) {
  const WorkloadSpec spec = {.requests = 500,
                             .requests_per_s = 10,
                             .prompt_tokens = 100,
                             .answer_tokens = 20,
                             .range = 0.5,
                             .seed = 3};
  const auto requests = MakeWorkload(spec);
  EXPECT_EQ(requests, MakeWorkload(spec));
  WorkloadSpec other = spec;
  other.seed = 4;
  EXPECT_NE(requests, MakeWorkload(other));
  ASSERT_EQ(requests.size(), 500u);
  EXPECT_TRUE(std::ranges::is_sorted(requests, {}, &PlannedRequest::at_ns));
  const double seconds = static_cast<double>(requests.back().at_ns) * 1e-9;
  EXPECT_NEAR(seconds, 50, 10) << "500 at 10 a second";
  const auto [least, most] = std::ranges::minmax(requests, {}, &PlannedRequest::prompt_tokens);
  EXPECT_GE(least.prompt_tokens, 50u);
  EXPECT_LE(least.prompt_tokens, 55u);
  EXPECT_LE(most.prompt_tokens, 150u);
  EXPECT_GE(most.prompt_tokens, 145u);
}

TEST(Workload, WithoutARateComesAtOnceAndAlike) {
  for (const PlannedRequest& request : MakeWorkload({.requests = 9, .prompt_tokens = 7}))
    EXPECT_EQ(request, (PlannedRequest{0, 7, 128}));
}

TEST(Workload, OfAFile) {
  const TemporaryFolder folder;
  const std::string path = folder / "requests.txt";
  const auto read = [&](const std::string& text) {
    std::ofstream(path) << text;
    return WorkloadOfFile(path);
  };
  EXPECT_EQ(read("# time prompt answer\n0.5 10 3\n\n\t0 20\t4\r\n"),
            (std::vector<PlannedRequest>{{0, 20, 4}, {500'000'000, 10, 3}}));
  for (const char* wrong :
       {"0 1", "0 1 2 3", "x 1 2", "-1 1 2", "0 0 2", "0 1 0", "0 1 2.5", "1e30 1 2", "nan 1 2"}) {
    const std::string error = ErrorOf([&] { read(std::string("0 1 1\n") + wrong + "\n"); });
    EXPECT_NE(error.find("line 2: '" + std::string(wrong) + "' is not a request"),
              std::string::npos)
        << wrong << ": " << error;
  }
  EXPECT_NE(ErrorOf([&] { read("# nothing\n"); }).find("has no requests"), std::string::npos);
  EXPECT_NE(ErrorOf([&] { WorkloadOfFile(path + ".none"); }).find("can't read"), std::string::npos);
}

TEST(Workload, MustFitTheContext) {
  CheckContext({{0, 60, 4}}, 64);
  EXPECT_NE(ErrorOf([] {
              CheckContext({{0, 60, 4}, {0, 60, 5}}, 64);
            }).find("context of 64"),
            std::string::npos);
}

}  // namespace
}  // namespace larder::node::simulate

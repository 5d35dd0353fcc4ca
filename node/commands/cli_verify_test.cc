// `larder verify`, and with it the bits of this version of the arithmetic.
#include <algorithm>
#include <set>
#include <sstream>
#include <string>

#include "node/commands/cli_testing.h"

namespace larder::node::inline commands {
namespace {

constexpr const char* kDemo = LARDER_SOURCE_DIR "/model/demo/larder-stories.gguf";

// The first words of the lines that name a mode.
std::multiset<std::string> Hashes(const std::string& out) {
  std::multiset<std::string> hashes;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    if (line.size() > 18 && line.substr(16, 2) == "  ") hashes.insert(line.substr(0, 16));
  }
  return hashes;
}

// The same on every CPU. It changes with kArithmeticVersion, and only then.
TEST_F(Cli, TheDemoModelHasTheBitsOfArithmetic5) {
  const Outcome got = Run({"verify", "-m", kDemo, "-t", "2", "--scalar"});
  ASSERT_EQ(got.code, 0) << got.err;
  EXPECT_NE(got.out.find("arithmetic 5"), std::string::npos) << got.out;
  const auto hashes = Hashes(got.out);
  EXPECT_GE(hashes.size(), 9u) << got.out;
  EXPECT_EQ(hashes.count("7410e0dc4e16fe87"), hashes.size()) << got.out;
  for (const char* mode : {"token by token", "in a batch", "scalar", "attention on a socket",
                           "two stages", "after a restart"}) {
    EXPECT_NE(got.out.find(mode), std::string::npos) << got.out;
  }
  EXPECT_NE(got.out.find("the same bits"), std::string::npos);
}

// A hash of other bits is another one: of other positions, of another model.
TEST_F(Cli, VerifyTellsBitsApart) {
  const auto of = [&](const std::string& model, const std::string& positions) {
    const Outcome got = Run({"verify", "-m", model, "-t", "1", "-n", positions});
    EXPECT_EQ(got.code, 0) << got.err;
    const auto hashes = Hashes(got.out);
    EXPECT_EQ(hashes.count(*hashes.begin()), hashes.size()) << got.out;
    return *hashes.begin();
  };
  const std::set<std::string> all = {of(kDemo, "64"), of(kDemo, "65"), of(Tiny(), "64")};
  EXPECT_EQ(all.size(), 3u);
}

TEST_F(Cli, VerifyRefusesWhatItCannotDo) {
  EXPECT_EQ(Run({"verify", "-m", kDemo, "-n", "31"}).code, 2);
  ExpectError(Run({"verify", "-m", Path("missing.gguf")}), "missing.gguf");
}

}  // namespace
}  // namespace larder::node::commands

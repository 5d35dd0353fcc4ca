// The file of schedules: what is written is read; anything else is refused in one line and changes
// nothing.
#include "node/options/schedule_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "base/error.h"

namespace larder::node::inline options {
namespace {

using kernels::Isa;
using nlohmann::json;

constexpr Isa kIsa = Isa::kAvx2;
// The caches of the CPU that files are of here; what the running one has must not matter.
constexpr kernels::CoreShape kCore = {.l1_bytes = 48 << 10, .l2_bytes = 2 << 20};

ScheduleFile Example() {
  ScheduleFile file{.machine = ScheduleMachine(kIsa, kCore), .tuned_at = "2026-11-23T02:00:00Z"};
  for (const size_t blocks : {32, 88}) {
    kernels::ScheduleTable table = kernels::AnalyticSchedules(kIsa, kCore);
    table[1].tile.prefetch = kernels::Prefetch::kNta;
    table[1].tile.prefetch_bytes = 64 + blocks;
    table[40].slice = {.blocks = 4, .panels = 2, .rows = 32, .unpacked = blocks == 32};
    file.products.push_back({{blocks}, 4 << 20, table});
    file.attention.push_back({2, blocks / 8, {table, 5, 3, blocks}});
  }
  return file;
}

class ScheduleFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("larder-schedules-" + std::to_string(getpid()));
    setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("XDG_CACHE_HOME");
    std::filesystem::remove_all(folder_);
  }
  std::filesystem::path folder_;
};

TEST_F(ScheduleFileTest, ReadsWhatItWrites) {
  const ScheduleFile file = Example();
  const std::string path = UserSchedules();
  EXPECT_EQ(ChooseSchedules(""), std::filesystem::exists(kSystemSchedules) ? kSystemSchedules : "");
  WriteSchedules(path, file);
  EXPECT_EQ(ChooseSchedules(""), path);
  EXPECT_EQ(ChooseSchedules("none"), "");
  const ScheduleFile read = ReadSchedules(path, kIsa, kCore);
  EXPECT_EQ(read.machine, file.machine);
  EXPECT_EQ(read.tuned_at, file.tuned_at);
  EXPECT_EQ(read.products, file.products);
  EXPECT_EQ(read.attention, file.attention);

  const kernels::KernelTuning tuning = TuningWith(kIsa, "", kCore);
  constexpr size_t kBytes = 4 << 20;
  const kernels::KernelTuning usual = kernels::DefaultTuning(kIsa, kCore);
  const kernels::ScheduleTable& untuned = usual.products;
  ASSERT_NE(untuned, usual.products_in_l2);
  EXPECT_EQ(tuning.For({32, kernels::kQ4KPanel}, kBytes), untuned);
  EXPECT_EQ(tuning.For({32}, kBytes), file.products[0].products);
  EXPECT_EQ(tuning.For({88}, kBytes), file.products[1].products);
  EXPECT_EQ(tuning.For({100}, kBytes * 2), file.products[1].products);  // the nearest
  EXPECT_EQ(tuning.For({2}, kBytes), untuned);
  EXPECT_EQ(tuning.For({32}, 0), untuned);                        // no weights
  EXPECT_EQ(tuning.For({32}, kBytes * 3), untuned);               // they come from another cache
  EXPECT_EQ(tuning.For({32}, kBytes / 3), usual.products_in_l2);  // of these, from L2
  EXPECT_EQ(tuning.ForAttention(2, 4), file.attention[0].attention);
  EXPECT_EQ(tuning.ForAttention(2, 11), file.attention[1].attention);
  EXPECT_EQ(tuning.ForAttention(2, 5), usual.attention);  // other groups
  EXPECT_EQ(tuning.ForAttention(3, 4), usual.attention);  // other heads
  EXPECT_TRUE(TuningWith(kIsa, "none", kCore).tuned.empty());
  EXPECT_TRUE(TuningWith(kIsa, "none", kCore).tuned_attention.empty());
  EXPECT_TRUE(TuningWith(Isa::kScalar, "", kCore).tuned.empty());
}

// Of another CPU: ignored, or refused if it was named.
TEST_F(ScheduleFileTest, SchedulesOfAnotherMachineAreNotUsed) {
  ScheduleFile file = Example();
  file.machine += ", of tomorrow";
  WriteSchedules(UserSchedules(), file);
  EXPECT_TRUE(TuningWith(kIsa, "", kCore).tuned.empty());
  EXPECT_TRUE(TuningWith(kIsa, "", kCore).tuned_attention.empty());
  EXPECT_THROW(TuningWith(kIsa, UserSchedules(), kCore), Error);
}

TEST_F(ScheduleFileTest, RefusesWhatDoesNotFit) {
  const json good = json::parse(FormatSchedules(Example()));
  EXPECT_NO_THROW(ParseSchedules(good.dump(), kIsa, "f", kCore));
  const auto refused = [&](auto&& change) {
    json bad = good;
    change(bad);
    try {
      ParseSchedules(bad.dump(), kIsa, "schedules.json", kCore);
      ADD_FAILURE() << bad.dump().substr(0, 300);
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_TRUE(text.starts_with("schedules.json: not a file of `larder tune`: ")) << text;
      EXPECT_EQ(text.find('\n'), std::string::npos);
    }
  };
  refused([](json& f) { f["larder_schedules"] = 1; });
  refused([](json& f) {  // as the version before wrote it
    f["larder_schedules"] = 3;
    f.erase("attention");
  });
  refused([](json& f) { f.erase("machine"); });
  refused([](json& f) { f["more"] = 1; });
  refused([](json& f) { f["products"] = 7; });
  refused([](json& f) { f = json::array(); });
  refused([](json& f) { f["products"][1]["blocks"] = 32; });
  refused([](json& f) { f["products"][0]["blocks"] = 0; });
  refused([](json& f) { f["products"][0]["blocks"] = -32; });
  refused([](json& f) { f["products"][0].erase("weight_bytes"); });
  refused([](json& f) { f["products"][0]["weight_bytes"] = 33 << 20; });
  refused([](json& f) { f["products"][0]["schedules"].erase(3); });
  const auto schedule = [](json& f) -> json& { return f["products"][0]["schedules"][2]; };
  refused([&](json& f) { schedule(f)["rows"] = 17; });
  refused([&](json& f) { schedule(f)["rows"] = 1.5; });
  refused([&](json& f) { schedule(f)["for_rows"] = 4; });
  refused([&](json& f) { schedule(f)["load"] = "lazy"; });
  refused([&](json& f) { schedule(f)["prefetch"] = 1; });
  refused([&](json& f) { schedule(f)["prefetch_bytes"] = 1u << 30; });
  refused([&](json& f) { schedule(f)["slice_blocks"] = 3; });
  refused([&](json& f) { schedule(f)["slice_rows"] = 18446744073709551615u; });
  refused([&](json& f) { schedule(f).erase("panels"); });
  refused([&](json& f) {
    for (int i = 0; i < 70; ++i) f["products"].push_back(f["products"][0]);
  });
  const auto attention = [](json& f) -> json& { return f["attention"][0]; };
  refused([](json& f) { f.erase("attention"); });
  refused([](json& f) { f["attention"] = json::object(); });
  refused([](json& f) {
    for (int i = 0; i < 17; ++i) f["attention"].push_back(f["attention"][0]);
  });
  refused([&](json& f) { f["attention"].push_back(attention(f)); });
  refused([&](json& f) { attention(f)["more"] = 1; });
  refused([&](json& f) { attention(f)["blocks"] = 0; });
  refused([&](json& f) { attention(f)["group"] = 0; });
  refused([&](json& f) { attention(f)["group"] = 257; });
  refused([&](json& f) { attention(f)["value_sums"] = 0; });
  refused([&](json& f) { attention(f)["value_sums"] = 33; });
  refused([&](json& f) { attention(f)["value_queries"] = 0; });
  refused([&](json& f) { attention(f)["value_queries"] = 6; });  // of 5 sums
  refused([&](json& f) { attention(f)["value_queries"] = "3"; });
  refused([&](json& f) { attention(f)["tile_queries"] = 0; });
  refused([&](json& f) { attention(f)["tile_queries"] = 257; });
  refused([&](json& f) { attention(f)["tile_queries"] = 28.5; });
  refused([&](json& f) { attention(f).erase("tile_queries"); });
  refused([&](json& f) { attention(f)["scores"].erase(0); });
  refused([&](json& f) { attention(f)["scores"][19]["panels"] = 2; });
}

// Any bytes: an Error, or schedules that fit.
TEST_F(ScheduleFileTest, MutatedFilesAreRefusedOrFit) {
  const std::string good = FormatSchedules(Example());
  std::mt19937 random(5);
  size_t read = 0;
  for (int i = 0; i < 300; ++i) {
    std::string text = good;
    const bool one_digit = i % 2 == 0;  // many of these fit, whatever this machine's name makes of
                                        // the rest
    for (size_t n = one_digit ? 2 : random() % 3; n < 3; ++n) {
      const size_t at = random() % text.size();
      switch (one_digit ? 3 : random() % 4) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, random() % 40);
          break;
        case 2:
          text.insert(at, 1, "0123456789,[]{}\":-e"[random() % 19]);
          break;
        default:  // one digit for another
          if (const size_t digit = text.find_first_of("0123456789", at); digit != std::string::npos)
            text[digit] = static_cast<char>('0' + random() % 10);
          break;
      }
    }
    try {
      const ScheduleFile file = ParseSchedules(text, kIsa, "f", kCore);
      for (const auto& tuned : file.products) {
        for (const kernels::Schedule& schedule : tuned.products.of)
          ASSERT_TRUE(kernels::ScheduleFits(kIsa, schedule));
      }
      for (const auto& tuned : file.attention)
        ASSERT_EQ(kernels::WhyNotFit(kIsa, tuned.attention), "");
      ++read;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(read, 0u);
  EXPECT_LT(read, 300u);
}

TEST_F(ScheduleFileTest, FilesThatCannotBeReadAreNoReasonToStop) {
  std::filesystem::create_directories(folder_ / "larder" / "schedules.json");  // a folder
  EXPECT_TRUE(TuningWith(kIsa, "", kCore).tuned.empty());
  EXPECT_THROW(TuningWith(kIsa, "/nonexistent/schedules.json", kCore), Error);
  const std::string large = folder_ / "large.json";
  std::ofstream(large) << std::string(3 << 20, ' ');
  EXPECT_THROW(ReadSchedules(large, kIsa, kCore), Error);
  EXPECT_THROW(WriteSchedules("/proc/none/schedules.json", Example()), Error);
  EXPECT_THROW(WriteSchedules("/dev/null", Example()), Error);  // a rename would replace it
}

}  // namespace
}  // namespace larder::node::options

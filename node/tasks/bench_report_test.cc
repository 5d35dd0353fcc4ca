// The arithmetic and the tables of `larder bench`, from runs made up here.
#include "node/tasks/bench_report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

namespace larder::node::inline tasks {
namespace {

BenchModel Model() {
  BenchModel model{
      .path = "m.gguf", .tensor_bytes = 1 << 20, .isa = "avx512", .cpu = "a CPU, family 25"};
  model.config.name = "tiny";
  return model;
}

BenchRun TwoTests() {
  BenchRun run{.threads = 2, .max_batch_tokens = 64};
  run.machine.l3_all_gbps = 80;
  run.machine.dram_all_gbps = 20;
  run.shard_gbps = 50;
  BenchResult decode{.test = {.decode = true, .tokens = 100, .batch = 2, .depth = 16}};
  decode.seconds = {1, 2, 4};
  decode.tokens_per_s = {200, 100, 50};
  decode.bytes_per_step = 0.5e9;
  decode.operations_per_token = 1e9;
  decode.resident_share = 0.875;
  BenchResult prefill{.test = {.tokens = 512}};
  prefill.seconds = {1};
  prefill.tokens_per_s = {512};
  prefill.operations_per_token = 1e9;
  run.results = {prefill, decode};
  return run;
}

TEST(BenchTestName, IsLlamaBenchs) {
  EXPECT_EQ((BenchTest{.tokens = 512}).name(), "pp512");
  EXPECT_EQ((BenchTest{.decode = true, .tokens = 128}).name(), "tg128");
  EXPECT_EQ((BenchTest{.decode = true, .tokens = 128, .batch = 8, .depth = 512}).name(),
            "tg128 b8 @ d512");
}

TEST(BenchResultTest, SpeedsAreMediansOverTheRepetitions) {
  const BenchResult decode = TwoTests().results[1];
  EXPECT_DOUBLE_EQ(decode.median(), 100);
  EXPECT_DOUBLE_EQ(decode.gbps(), 25) << "50 steps of two sequences a second";
  EXPECT_DOUBLE_EQ(decode.gops(), 100);
  EXPECT_DOUBLE_EQ(Mean({}), 0);
  EXPECT_DOUBLE_EQ(Deviation({3}), 0);
  EXPECT_DOUBLE_EQ(Deviation({1, 3}), std::sqrt(2));
}

TEST(BenchMarkdownTest, HasSpeedsAndSharesOfTheLimits) {
  const std::string text = BenchMarkdown(Model(), {TwoTests()});
  std::istringstream lines(text);
  std::vector<std::string> rows;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 112u) << line;
    if (line.find("tg100 b2 @ d16") != std::string::npos) rows.push_back(line);
  }
  ASSERT_EQ(rows.size(), 2u) << text;
  EXPECT_NE(rows[0].find("100.00 ± "), std::string::npos) << rows[0];
  for (const char* share : {"500.00", "25.0", " 50 %", " 31 %", " caches |", " 88 % |"})
    EXPECT_NE(rows[1].find(share), std::string::npos) << share << " in " << rows[1];
}

TEST(BenchJsonTest, HasLlamaBenchsFields) {
  const auto json = nlohmann::json::parse(BenchJson(Model(), {TwoTests()}));
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[0]["n_prompt"], 512);
  EXPECT_EQ(json[0]["n_gen"], 0);
  EXPECT_EQ(json[1]["n_gen"], 100);
  EXPECT_EQ(json[1]["n_threads"], 2);
  EXPECT_EQ(json[1]["samples_ts"].size(), 3u);
  EXPECT_EQ(json[1]["model_filename"], "m.gguf");
  EXPECT_TRUE(json[0]["resident_share_live"].is_null());
  EXPECT_EQ(json[1]["resident_share_live"], 0.875);
}

TEST(BreakdownTest, PartsAddUp) {
  Breakdown breakdown{.test = {.decode = true, .tokens = 8}, .steps = 8, .step_us = 100};
  breakdown.parts = {{"qkv", 30, 15}, {"attention", 20, 0}, {"waiting", 50, 0}};
  EXPECT_DOUBLE_EQ(breakdown.sum_us(), 100);
  EXPECT_DOUBLE_EQ(breakdown.products_us(), 30);
  EXPECT_DOUBLE_EQ(breakdown.products_limit_us(), 15);
  const std::string text = BreakdownMarkdown(Model(), 2, {breakdown});
  for (const char* part : {"qkv", "attention", "waiting", "tg8"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
  const auto json = nlohmann::json::parse(BreakdownJson(Model(), {{2, {breakdown}}}));
  ASSERT_EQ(json.size(), 1u);
}

TEST(RoutingTest, HasARowForEachLayer) {
  const BenchRouting routing{
      .test = {.decode = true, .tokens = 8},
      .layers = {{.layer = 1, .used = 1, .steps = 8, .active = 8, .rows = {6, 0, 2, 0}},
                 {.layer = 2,
                  .used = 1,
                  .steps = 8,
                  .active = 8,
                  .followed = 4,
                  .again = 1,
                  .rows = {2, 2, 2, 2}}}};
  std::istringstream lines(RoutingMarkdown(Model(), {routing}));
  std::vector<std::string> rows;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 140u) << line;
    if (line.starts_with("|  ")) rows.push_back(line);
  }
  ASSERT_EQ(rows.size(), 2u);
  for (const char* figure : {"    1 |", " 3.00 |", " - |", " 25.0 % |", " 75.0 % |", " 100.0 % |"})
    EXPECT_NE(rows[0].find(figure), std::string::npos) << figure << " in " << rows[0];
  for (const char* figure : {"    2 |", " 1.00 |", " 25.0 % |", " 50.0 % |"})
    EXPECT_NE(rows[1].find(figure), std::string::npos) << figure << " in " << rows[1];
  const auto json = nlohmann::json::parse(RoutingJson(Model(), {routing}));
  EXPECT_EQ(json[0]["layers"][1]["reuse"], 0.25);
}

}  // namespace
}  // namespace larder::node::tasks

#include "serving/metrics/status.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "serving/admission/recent_rate.h"
#include "serving/metrics/experts.h"
#include "serving/metrics/exposition_testing.h"

namespace larder::serving::inline metrics {
namespace {

using nlohmann::json;

TEST(PlanJsonTest, NamesWhereEverythingLives) {
  PlanView plan;
  plan.model = "demo";
  plan.layers = 8;
  plan.sockets.push_back(
      {.name = "weights",
       .role = "weight",
       .server = "a",
       .first_layer = 2,
       .layers = 6,
       .lm_head = true,
       .l3_groups = {{.id = 3,
                      .package = 1,
                      .l3_bytes = 100,
                      .budget_bytes = 75,
                      .weight_bytes = 60,
                      .cores = {4, 5},
                      .threads = {{.core = 5, .cpu = 10, .numa_node = 1, .weight_bytes = 60}}}}});
  plan.links.push_back({"weights", "attention", "rdma"});
  const json out = PlanJson(plan);
  EXPECT_EQ(out["model"]["name"], "demo");
  EXPECT_TRUE(out["model"]["chat_format"].is_null());
  const json& socket = out["sockets"][0];
  EXPECT_EQ(socket["first_layer"], 2);
  EXPECT_EQ(socket["layers"], 6);
  EXPECT_EQ(socket["lm_head"], true);
  EXPECT_EQ(socket["embedding"], false);
  const json& group = socket["l3_groups"][0];
  EXPECT_EQ(group["cores"], json({4, 5}));
  EXPECT_EQ(group["threads"][0]["cpu"], 10);
  EXPECT_EQ(group["budget_bytes"], 75);
  EXPECT_EQ(out["links"][0], json({{"from", "weights"}, {"to", "attention"}, {"kind", "rdma"}}));
}

TEST(StatusJsonTest, ShowsWhatRoutersChoose) {
  const std::vector<ExpertCounts> layers = {
      {.layer = 3, .used = 2, .steps = 4, .active = 10, .followed = 3, .again = 3, .rows = {6, 2}}};
  const json out = ExpertsJson(layers);
  EXPECT_EQ(out["layers"][0], json({{"layer", 3},
                                    {"experts_used", 2},
                                    {"steps", 4},
                                    {"experts_per_step", 2.5},
                                    {"skew", 1.5},
                                    {"reuse", 0.5},
                                    {"rows", {6, 2}}}));
  StatusView status;
  status.experts = ExpertTotals(layers);
  EXPECT_EQ(ServerStatusJson(status)["experts"],
            json({{"rows", 8}, {"per_layer_and_step", 2.5}, {"reuse", 0.5}}));
  const Exposition text = ParseExposition(ExpertsText(layers));
  EXPECT_EQ(text.Value(R"(larder_expert_rows_total{expert="0",layer="3"})"), 6);
  EXPECT_EQ(text.Value(R"(larder_expert_rows_total{expert="1",layer="3"})"), 2);
}

TEST(StatusJsonTest, CountsSlotsAndSplitsTheHistogram) {
  StatusView status;
  status.state = "serving";
  status.slots = {{SlotView::State::kIdle, 5, 0},
                  {SlotView::State::kDecode, 20, 7},
                  {SlotView::State::kPrefill, 3, 0}};
  status.kv_chunks = 16;
  status.used_kv_chunks = 9;
  status.shared_kv_chunks = 2;
  status.kept_states = 4;
  status.tpot = {{0.001, 0.002, std::numeric_limits<double>::infinity()}, {2, 5, 6}, 0.5};
  status.sockets.push_back({.name = "weights",
                            .state = "serving",
                            .counters = {.frames = 4,
                                         .step_ns = 6'000'000,
                                         .wait_ns = 2'000'000,
                                         .weight_bytes = 1000,
                                         .live_resident_bytes = 250},
                            .resident_share = 0.5,
                            .thread_resident_share_live = {0.25, std::nullopt}});
  status.sockets.push_back({.name = "attention", .state = "loading"});
  const json out = ServerStatusJson(status);
  EXPECT_EQ(out["slots_used"], 2);
  EXPECT_EQ(out["slots"][1],
            json({{"state", "decode"}, {"cached_tokens", 20}, {"generated_tokens", 7}}));
  EXPECT_EQ(out["kv_chunks"], json({{"total", 16}, {"used", 9}, {"shared", 2}}));
  EXPECT_EQ(out["states_kept"], 4);
  EXPECT_TRUE(out["experts"].is_null());
  EXPECT_EQ(out["tpot"]["count"], 6);
  EXPECT_EQ(out["tpot"]["buckets"][1], json({{"upper_seconds", 0.002}, {"count", 3}}));
  EXPECT_TRUE(out["tpot"]["buckets"][2]["upper_seconds"].is_null());
  EXPECT_DOUBLE_EQ(out["sockets"][0]["waiting_ratio"], 0.25);
  EXPECT_DOUBLE_EQ(out["sockets"][0]["mean_step_seconds"], 0.0015);
  EXPECT_EQ(out["sockets"][0]["resident_share"], 0.5);
  EXPECT_EQ(out["sockets"][0]["resident_share_live"], 0.25);
  EXPECT_EQ(out["sockets"][0]["thread_resident_share_live"], json::array({0.25, nullptr}));
  EXPECT_EQ(out["sockets"][1]["layer_resident_share_live"], json::array());
  EXPECT_TRUE(out["sockets"][1]["resident_share"].is_null());
  EXPECT_TRUE(out["sockets"][1]["resident_share_live"].is_null());
  EXPECT_EQ(out["sockets"][1]["waiting_ratio"], 0);
}

TEST(RecentRateTest, IsTheMeanOfTheLastTwoSeconds) {
  constexpr int64_t kSecond = 1'000'000'000;
  RecentRate rate;
  EXPECT_EQ(rate.PerSecond(5 * kSecond), 0);
  for (int64_t ms = 5000; ms < 9000; ms += 10) rate.Add(ms * 1'000'000, 3);
  EXPECT_EQ(rate.PerSecond(9 * kSecond), 300);
  EXPECT_EQ(rate.PerSecond(10 * kSecond), 150);
  EXPECT_EQ(rate.PerSecond(11 * kSecond), 0);
  rate.Add(11 * kSecond);
  EXPECT_EQ(rate.PerSecond(11 * kSecond), 0);  // the current bin does not count yet
  EXPECT_EQ(rate.PerSecond(12 * kSecond), 0.5);
  EXPECT_EQ(rate.PerSecond(1000 * kSecond), 0);
}

}  // namespace
}  // namespace larder::serving::metrics

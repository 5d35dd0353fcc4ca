#include "serving/metrics/metrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "serving/metrics/exposition_testing.h"

namespace larder::serving::inline metrics {
namespace {

constexpr int64_t kMs = 1'000'000;

TEST(ServingMetricsTest, CountsARequestsLife) {
  ServingMetrics metrics({"weights"});
  metrics.Admitted(Protocol::kHttp, 2 * kMs, 100, 40);
  metrics.Admitted(Protocol::kHttp, 0, 10, 0);
  metrics.FirstToken(Protocol::kHttp, 30 * kMs);
  metrics.NextToken(Protocol::kHttp, 4 * kMs);
  metrics.NextToken(Protocol::kHttp, 8 * kMs);
  metrics.Finished(Protocol::kHttp, RequestOutcome::kStop, 3, 30 * kMs, 42 * kMs);
  metrics.Finished(Protocol::kText, RequestOutcome::kRefused, 0, 0, 0);
  metrics.Finished(Protocol::kText, RequestOutcome::kCancelled, 5, 1, 2);

  const Exposition e = ParseExposition(metrics.Render());
  EXPECT_EQ(e.Value("larder_prompt_tokens_total"), 70);
  EXPECT_EQ(e.Value("larder_prefix_reused_tokens_total"), 40);
  EXPECT_EQ(e.Value("larder_prefix_hits_total"), 1);
  EXPECT_EQ(e.Value("larder_generated_tokens_total"), 3);
  EXPECT_EQ(e.Value(R"(larder_requests_total{outcome="stop",protocol="http"})"), 1);
  EXPECT_EQ(e.Value(R"(larder_requests_total{outcome="refused",protocol="text"})"), 1);
  EXPECT_EQ(e.Value(R"(larder_requests_total{outcome="cancelled",protocol="text"})"), 1);
  EXPECT_EQ(e.Value(R"(larder_requests_total{outcome="length",protocol="http"})"), 0);
  EXPECT_EQ(e.Value("larder_queue_time_seconds_count"), 2);
  EXPECT_DOUBLE_EQ(e.Value("larder_queue_time_seconds_sum"), 0.002);
  EXPECT_EQ(e.Value("larder_time_to_first_token_seconds_count"), 1);
  EXPECT_EQ(e.Value(R"(larder_time_to_first_token_seconds_bucket{le="0.025"})"), 0);
  EXPECT_EQ(e.Value(R"(larder_time_to_first_token_seconds_bucket{le="0.05"})"), 1);
  EXPECT_EQ(e.Value("larder_inter_token_latency_seconds_count"), 2);
  EXPECT_EQ(e.Value(R"(larder_inter_token_latency_seconds_bucket{le="0.005"})"), 1);
  // Refused and cancelled requests have no end-to-end time and no TPOT.
  EXPECT_EQ(e.Value("larder_end_to_end_latency_seconds_count"), 1);
  EXPECT_EQ(e.Value("larder_time_per_output_token_seconds_count"), 1);
  EXPECT_DOUBLE_EQ(e.Value("larder_time_per_output_token_seconds_sum"), 0.006);
  EXPECT_EQ(metrics.generated_tokens(), 3u);
  EXPECT_EQ(metrics.prompt_tokens(), 70u);
}

TEST(ServingMetricsTest, HasLlamaServersNamesToo) {
  ServingMetrics metrics({});
  metrics.Admitted(Protocol::kHttp, 0, 100, 40);
  metrics.FirstToken(Protocol::kHttp, 30 * kMs);
  metrics.NextToken(Protocol::kHttp, 4 * kMs);
  metrics.Worked(1500 * kMs, 500 * kMs, 102);
  metrics.Worked(500 * kMs, 0, 7);
  metrics.SetSlots(4, 3);
  metrics.SetQueue(2);
  metrics.SetScheduler({.steps = 10, .busy_slots = 25});
  metrics.SetResponses(5, 1234);
  for (int twice = 0; twice < 2; ++twice) {  // reading changes no counter
    const std::string text = metrics.Render();
    const Exposition e = ParseExposition(text);
    EXPECT_EQ(e.Value("llamacpp:prompt_tokens_total"), 60);
    EXPECT_EQ(e.Value("llamacpp:prompt_tokens_cached_total"), 40);
    EXPECT_EQ(e.Value("llamacpp:prompt_seconds_total"), 2);
    EXPECT_EQ(e.Value("llamacpp:tokens_predicted_total"), 2);
    EXPECT_EQ(e.Value("llamacpp:tokens_predicted_seconds_total"), 0.5);
    EXPECT_EQ(e.Value("llamacpp:n_decode_total"), 10);
    EXPECT_EQ(e.Value("llamacpp:n_tokens_max"), 102);
    EXPECT_EQ(e.Value("llamacpp:spec_decode_num_drafts_total"), 0);
    EXPECT_EQ(e.Value("llamacpp:requests_processing"), 3);
    EXPECT_EQ(e.Value("llamacpp:requests_deferred"), 2);
    EXPECT_EQ(e.Value("llamacpp:n_busy_slots_per_decode"), 2.5);
    EXPECT_EQ(e.Value("larder_responses"), 5);
    EXPECT_EQ(e.Value("larder_response_bytes"), 1234);
    EXPECT_NE(text.find("# TYPE llamacpp:n_tokens_max counter"), std::string::npos);
    EXPECT_NE(text.find("# TYPE llamacpp:prompt_tokens_seconds gauge"), std::string::npos);
  }
}

TEST(ServingMetricsTest, OneTokenHasNoTpot) {
  ServingMetrics metrics({});
  metrics.Finished(Protocol::kHttp, RequestOutcome::kLength, 1, kMs, kMs);
  const Exposition e = ParseExposition(metrics.Render());
  EXPECT_EQ(e.Value("larder_time_per_output_token_seconds_count"), 0);
  EXPECT_EQ(e.Value("larder_end_to_end_latency_seconds_count"), 1);
}

TEST(ServingMetricsTest, GaugesShowTheLastValue) {
  ServingMetrics metrics({});
  metrics.SetSlots(8, 3);
  metrics.SetSlots(8, 2);
  metrics.SetQueue(5);
  metrics.SetConnections(Protocol::kText, 7);
  const Exposition e = ParseExposition(metrics.Render());
  EXPECT_EQ(e.Value("larder_slots"), 8);
  EXPECT_EQ(e.Value("larder_slots_used"), 2);
  EXPECT_EQ(e.Value("larder_requests_waiting"), 5);
  EXPECT_EQ(e.Value(R"(larder_connections{protocol="text"})"), 7);
  EXPECT_EQ(e.Value(R"(larder_connections{protocol="http"})"), 0);
}

TEST(ServingMetricsTest, SocketsCountersGrowAndRatiosAreOfTheTimeSince) {
  ServingMetrics metrics({"weights", "attention \"a\\b\"\n"});
  metrics.SetSocket(0, {.frames = 10,
                        .rows = 80,
                        .step_ns = 5 * kMs,
                        .wait_ns = 5 * kMs,
                        .weight_bytes = 1000,
                        .resident_bytes = 900,
                        .round_trip_ns = 2000});
  metrics.SetSocket(0, {.frames = 30,
                        .rows = 120,
                        .step_ns = 11 * kMs,
                        .wait_ns = 6 * kMs,
                        .link_ns = 1 * kMs,
                        .weight_bytes = 1000,
                        .resident_bytes = 950,
                        .round_trip_ns = 3000,
                        .live_resident_bytes = 250});
  const std::string text = metrics.Render();
  const Exposition e = ParseExposition(text);
  const std::string weights = R"({socket="weights"})";
  EXPECT_EQ(e.Value("larder_socket_frames_total" + weights), 30);
  EXPECT_EQ(e.Value("larder_socket_tokens_total" + weights), 120);
  EXPECT_DOUBLE_EQ(e.Value("larder_socket_step_seconds_total" + weights), 0.011);
  EXPECT_DOUBLE_EQ(e.Value("larder_socket_wait_seconds_total" + weights), 0.006);
  EXPECT_DOUBLE_EQ(e.Value("larder_socket_link_wait_seconds_total" + weights), 0.001);
  EXPECT_EQ(e.Value("larder_socket_resident_bytes" + weights), 950);
  EXPECT_EQ(e.Value("larder_socket_live_resident_ratio" + weights), 0.25);
  EXPECT_DOUBLE_EQ(e.Value("larder_socket_step_seconds" + weights), 0.0003);  // 6 ms of 20 frames
  EXPECT_DOUBLE_EQ(e.Value("larder_socket_waiting_ratio" + weights), 0.25);   // 2 of 8 ms
  EXPECT_DOUBLE_EQ(e.Value("larder_socket_link_round_trip_seconds" + weights), 3e-6);
  EXPECT_EQ(e.Value(R"(larder_socket_frames_total{socket="attention \"a\\b\"\n"})"), 0);

  metrics.SetScheduler({.transitions = 3, .lost = 1, .parked = 2, .recomputed_tokens = 150});
  metrics.SetScheduler({.transitions = 4,
                        .lost = 1,
                        .preempted = 5,
                        .parked = 2,
                        .recomputed_tokens = 150,
                        .kv_chunks = 16,
                        .used_kv_chunks = 9,
                        .shared_kv_chunks = 3,
                        .kept_states = 2});
  metrics.SetExperts(ExpertTotals(
      {{.used = 2, .steps = 4, .active = 10, .followed = 3, .again = 5, .rows = {6, 2}}}));
  const Exposition scheduler = ParseExposition(metrics.Render());
  EXPECT_EQ(scheduler.Value("larder_experts_chosen_total"), 8);
  EXPECT_EQ(scheduler.Value("larder_experts_read_total"), 10);
  EXPECT_EQ(scheduler.Value("larder_expert_steps_total"), 4);
  EXPECT_EQ(scheduler.Value("larder_experts_chosen_again_total"), 5);
  EXPECT_EQ(scheduler.Value("larder_schedule_transitions_total"), 4);
  EXPECT_EQ(scheduler.Value("larder_chain_lost_total"), 1);
  EXPECT_EQ(scheduler.Value("larder_requests_preempted_total"), 5);
  EXPECT_EQ(scheduler.Value("larder_kv_chunks"), 16);
  EXPECT_EQ(scheduler.Value("larder_kv_chunks_used"), 9);
  EXPECT_EQ(scheduler.Value("larder_kv_chunks_shared"), 3);
  EXPECT_EQ(scheduler.Value("larder_states_kept"), 2);
  EXPECT_EQ(scheduler.Value("larder_requests_paused_total"), 2);
  EXPECT_EQ(scheduler.Value("larder_recomputed_tokens_total"), 150);

  // A socket that was started again counts from 0.
  metrics.SetSocket(0, {.frames = 4, .step_ns = kMs});
  EXPECT_EQ(ParseExposition(metrics.Render()).Value("larder_socket_frames_total" + weights), 34);
}

TEST(ServingMetricsTest, BucketsBeginAtATenthOfAMillisecondAndSumUp) {
  ServingMetrics metrics({});
  metrics.NextToken(Protocol::kHttp, 50'000);  // 0.05 ms
  metrics.NextToken(Protocol::kHttp, 100'000);
  metrics.NextToken(Protocol::kHttp, 120'000);
  metrics.NextToken(Protocol::kHttp, 3'600'000 * kMs);
  const Exposition e = ParseExposition(metrics.Render());
  for (const auto& [name, type] : e.types) {
    if (type != "histogram") continue;
    const auto buckets = e.Buckets(name);
    ASSERT_GT(buckets.size(), 10u) << name;
    EXPECT_EQ(buckets.front().first, 1e-4) << name;
    EXPECT_EQ(buckets.back().first, std::numeric_limits<double>::infinity()) << name;
    EXPECT_TRUE(std::is_sorted(buckets.begin(), buckets.end())) << name;
    for (size_t i = 1; i < buckets.size(); ++i)
      EXPECT_LE(buckets[i - 1].second, buckets[i].second) << name;
    EXPECT_EQ(buckets.back().second, e.Value(name + "_count")) << name;
  }
  EXPECT_EQ(e.Value(R"(larder_inter_token_latency_seconds_bucket{le="0.0001"})"),
            2);  // a bound belongs to its bucket
  EXPECT_EQ(e.Value(R"(larder_inter_token_latency_seconds_bucket{le="0.00015"})"), 3);
  EXPECT_EQ(e.Value(R"(larder_inter_token_latency_seconds_bucket{le="1"})"), 3);
  EXPECT_EQ(e.Value(R"(larder_inter_token_latency_seconds_bucket{le="+Inf"})"), 4);
}

TEST(ServingMetricsTest, NamesFollowPrometheusRules) {
  const Exposition e = ParseExposition(ServingMetrics({"a"}).Render());
  ASSERT_GE(e.types.size(), 20u);
  for (const auto& [name, type] : e.types) {
    if (name.starts_with("llamacpp:")) continue;  // llama-server's own
    EXPECT_TRUE(name.starts_with("larder_")) << name;
    EXPECT_EQ(type == "counter", name.ends_with("_total")) << name;
    EXPECT_TRUE(type != "histogram" || name.ends_with("_seconds")) << name;
    EXPECT_FALSE(e.helps.at(name).empty()) << name;
  }
}

TEST(ServingMetricsTest, TpotHistogramIsWhatPrometheusSees) {
  ServingMetrics metrics({});
  metrics.Finished(Protocol::kHttp, RequestOutcome::kStop, 2, 0, 4 * kMs);
  metrics.Finished(Protocol::kHttp, RequestOutcome::kStop, 3, 0, 4 * kMs);
  const HistogramView view = metrics.TpotHistogram();
  ASSERT_EQ(view.upper_s.size(), view.count.size());
  const auto buckets =
      ParseExposition(metrics.Render()).Buckets("larder_time_per_output_token_seconds");
  ASSERT_EQ(buckets.size(), view.count.size());
  for (size_t i = 0; i < buckets.size(); ++i) EXPECT_EQ(buckets[i].second, view.count[i]);
  EXPECT_DOUBLE_EQ(view.sum_s, 0.006);
}

TEST(ExpositionParserTest, RefusesWhatIsNotTheFormat) {
  const std::string head = "# HELP a_total A.\n# TYPE a_total counter\n";
  EXPECT_EQ(ParseExposition(head + "a_total 3\n").Value("a_total"), 3);
  for (const char* wrong :
       {"a_total 3", "a_total  3\n", "a_total three\n", "a_total{x=1} 3\n", "a_total{x=\"1} 3\n",
        "a_total{x=\"\\q\"} 3\n", "b_total 3\n", "a_total 3\na_total 4\n", "a_total -1\n",
        "a_total{x=\"1\",x=\"2\"} 3\n", "9a 3\n", "\n", "a_total 3\n# TYPE a_total counter\n",
        "a_total NaN\n"}) {
    EXPECT_THROW(ParseExposition(head + wrong), std::runtime_error) << wrong;
  }
}

}  // namespace
}  // namespace larder::serving::metrics

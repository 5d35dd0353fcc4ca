#include "pipeline/plan/plan.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "pipeline/plan/layer_split.h"
#include "pipeline/plan/plan_testing.h"

namespace larder::pipeline::inline plan {
namespace {

using Sizes = std::vector<size_t>;
using Sizes64 = std::vector<uint64_t>;

constexpr uint64_t kMb = 1000 * 1000;

Sizes Share(size_t layers, const std::vector<uint64_t>& weights) {
  return ShareLayers(layers, weights);
}

TEST(ClusterLayers, InProportion) {
  EXPECT_EQ(Share(28, {1, 1, 1, 1}), (Sizes{7, 7, 7, 7}));
  EXPECT_EQ(Share(30, {1, 1, 1, 1}), (Sizes{8, 8, 7, 7}));
  EXPECT_EQ(Share(12, {300, 100}), (Sizes{9, 3}));
  EXPECT_EQ(Share(12, {100, 300, 200}), (Sizes{2, 6, 4}));
  EXPECT_EQ(Share(4, {1000, 1, 1}), (Sizes{2, 1, 1})) << "every stage has a layer";
  EXPECT_EQ(Share(80, std::vector<uint64_t>(80, 7)), Sizes(80, 1));
  EXPECT_EQ(Share(5, {0, 0}), (Sizes{3, 2})) << "nothing known";
  EXPECT_EQ(Share(1000, {uint64_t{1} << 50, uint64_t{1} << 50}), (Sizes{500, 500}));
  EXPECT_NE(ErrorOf([] {
              Share(3, {1, 1, 1, 1});
            }).find("3 layers for 4 sockets"),
            std::string::npos);
  EXPECT_NE(ErrorOf([] { Share(3, {}); }).find("3 layers for 0 sockets"), std::string::npos);
}

// Layers that attend to each other's keys and values are not divided.
TEST(ClusterLayers, TheLastOnesMayBelongTogether) {
  EXPECT_EQ(ShareLayers(12, Sizes64{1, 1}, 7), (Sizes{5, 7}));
  EXPECT_EQ(ShareLayers(12, Sizes64{1, 3}, 7), (Sizes{3, 9}));
  EXPECT_EQ(ShareLayers(12, Sizes64{3, 1}, 7), (Sizes{5, 7}));
  EXPECT_EQ(ShareLayers(8, Sizes64{1, 1, 1}, 6), (Sizes{1, 1, 6}));
  EXPECT_EQ(ErrorOf([] {
              ShareLayers(8, Sizes64{1, 1, 1, 1}, 6);
            }),
            "plan: 8 layers for 4 sockets that hold weights, and the last 6 layers belong to one, "
            "since they share keys and values; expected at most 3 sockets");
}

TEST(PlanTest, SharedKeysAndValuesStayInOneStage) {
  const auto config = model::ConfigOfShape({.architecture = "gemma4",
                                            .layers = 12,
                                            .dim = 64,
                                            .ffn = 96,
                                            .heads = 4,
                                            .kv_heads = 2,
                                            .head_size = 16,
                                            .vocab = 300,
                                            .window = 32,
                                            .input_size = 32,
                                            .shared_kv = 4},
                                           "small");
  const auto manifest = [](const char* first, const char* second) {
    return fmt::format(
        "[[server]]\nname = \"a\"\n[[server.socket]]\nname = \"x\"\nrole = \"colocated\"\ncores = "
        "\"package:0\"\n{}"
        "[[server.socket]]\nname = \"y\"\nrole = \"colocated\"\ncores = \"package:1\"\n{}",
        first, second);
  };
  const Plan plan = PlanOf(manifest("", ""), config, "two-packages");
  ASSERT_EQ(plan.stages.size(), 2u);
  EXPECT_NE(plan.Table().find("1 layer with KV of "), std::string::npos) << plan.Table();
  EXPECT_NE(plan.Table().find("; 4 layers with that of others"), std::string::npos);
  EXPECT_EQ(plan.stages[0].layers, 5u) << "layer 11 has the keys and values of layer 5";
  EXPECT_EQ(ErrorOf([&] {
              PlanOf(manifest("layers = \"0-5\"\n", "layers = \"6-11\"\n"), config, "two-packages");
            }),
            "m.toml: layers = \"6-11\" of socket \"y\": layer 11 attends to the keys and values of "
            "layer 5; expected layers 5-11 in one socket");
}

// No other division leaves the fullest stage less full.
TEST(ClusterLayers, TheFullestStageIsAsEmptyAsItCanBe) {
  const std::vector<uint64_t> weights = {5, 9, 4};
  const size_t layers = 17;
  const Sizes share = Share(layers, weights);
  const auto fullest = [&](const Sizes& s) {
    double most = 0;
    for (size_t i = 0; i < s.size(); ++i)
      most = std::max(most, static_cast<double>(s[i]) / static_cast<double>(weights[i]));
    return most;
  };
  EXPECT_EQ(share[0] + share[1] + share[2], layers);
  for (size_t a = 1; a < layers; ++a) {
    for (size_t b = 1; a + b < layers; ++b)
      EXPECT_LE(fullest(share), fullest({a, b, layers - a - b}) + 1e-12) << a << " " << b;
  }
}

// The paper's table 1: EPYC 9684X sockets, 96 cores and 1152 MB of L3, three quarters of it for
// weights.
TEST(ClusterShape, TheSocketsOfTheLiterature) {
  struct Row {
    const char* name;
    size_t layers, sockets, layers_per_socket;
    double int8_gb;
  };
  for (const Row& row : {Row{"llama-3.2-3b", 28, 4, 7, 3.21}, Row{"llama-2-7b", 32, 8, 4, 6.74},
                         Row{"qwen3-8b", 36, 9, 4, 8.19}, Row{"llama-2-70b", 80, 80, 1, 68.98}}) {
    // A vendor's MB has 2^20 bytes; the answer must not depend on it.
    for (const uint64_t l3_bytes : {1152 * kMb, uint64_t{1152} << 20}) {
      SCOPED_TRACE(fmt::format("{} {}", row.name, l3_bytes));
      const model::ModelConfig config = Shape(row.name);
      const Plan plan = PlanUniformCluster(config, {96, l3_bytes}, {}, {});
      EXPECT_EQ(config.layers, row.layers);
      EXPECT_EQ(plan.stages.size(), row.sockets);
      for (const PlacedStage& stage : plan.stages) EXPECT_EQ(stage.layers, row.layers_per_socket);
      EXPECT_EQ(plan.serving_socket, "serving");
      EXPECT_EQ(fmt::format("{:.2f}", static_cast<double>(config.parameters()) * 1e-9),
                fmt::format("{:.2f}", row.int8_gb));
      EXPECT_EQ(plan.capacity.max_in_flight, row.sockets + 1);
      const std::string table = plan.Table();
      EXPECT_NE(table.find(fmt::format("{}+1: {} with {} layer", row.sockets, row.sockets,
                                       row.layers_per_socket)),
                std::string::npos)
          << table;
      EXPECT_NE(table.find(fmt::format("{:.2f} GB at one byte per parameter", row.int8_gb)),
                std::string::npos)
          << table;
      EXPECT_EQ(plan.Json()["sockets"], row.sockets);
    }
  }
}

TEST(ClusterShape, SaysWhenALayerIsMoreThanASocketsBudget) {
  const auto note = [](const Plan& plan) {
    const auto found = std::ranges::find_if(
        plan.notes, [](const std::string& text) { return text.starts_with("one layer has"); });
    return found == plan.notes.end() ? "" : *found;
  };
  const Plan fits = PlanUniformCluster(Shape("llama-2-7b"), {96, 1152 * kMb}, {}, {});
  EXPECT_TRUE(fits.resident());
  EXPECT_EQ(note(fits), "");
  const Plan large = PlanUniformCluster(Shape("llama-2-70b"), {96, 1000 * kMb}, {}, {});
  EXPECT_FALSE(large.resident());
  EXPECT_NE(note(large).find("it fits the L3 with less room"), std::string::npos) << note(large);
  const Plan small = PlanUniformCluster(Shape("llama-2-70b"), {96, 100 * kMb}, {}, {});
  EXPECT_NE(note(small).find("it streams from memory"), std::string::npos) << note(small);
  EXPECT_GT(small.prediction.Point(1).tpot_ms, 2 * large.prediction.Point(1).tpot_ms);
}

// A 2-layer model whose numbers can be computed by head.
TEST(ClusterPrediction, IsTheFormulaThatItPrints) {
  Prediction p;
  p.speeds = {.l3_core_gbps = 10,
              .dram_socket_gbps = 50,
              .core_gops = 1000,
              .layer_sync_us = 3,
              .link_latency_us = 5,
              .link_gbps = 1,
              .source = "the test"};
  p.capacity.context = 100;
  p.capacity.max_in_flight = 3;
  p.row_bytes = 1000;
  p.links = 3;
  const PredictedStage stage{.name = "a",
                             .layers = 2,
                             .cores = 10,
                             .weight_bytes = 10 * kMb,  // 100 us at 100 GB/s
                             .weight_parameters = 9 * kMb,
                             .weights_in_l3 = true,
                             .kv_bytes = kMb,  // 10 us
                             .kv_cores = 10,
                             .kv_room_bytes = 12 * kMb};
  PredictedStage far = stage;
  far.weights_in_l3 = false;  // 200 us at 50 GB/s
  p.stages = {
      stage, far, {.name = "s", .cores = 10, .weight_bytes = 2 * kMb, .weights_in_l3 = true}};
  const PredictedTimes one = p.Times(stage, 1);
  EXPECT_NEAR(one.weights_us, 100, 1e-9);
  EXPECT_NEAR(one.attention_us, 10, 1e-9);
  EXPECT_NEAR(one.stage_us, 2 * (100 + 10 + 3), 1e-9);
  EXPECT_FALSE(one.compute_bound);
  EXPECT_TRUE(one.kv_in_l3) << "3 in flight x 2 layers x 1 MB";
  EXPECT_NEAR(p.Times(far, 1).stage_us, 2 * (200 + 10 + 3), 1e-9);
  EXPECT_NEAR(p.LinkUs(1), 5 + 1, 1e-9);
  const double path_us = 226 + 426 + 20 + 3 * 6;
  EXPECT_NEAR(p.Point(1).alone_ms, path_us * 1e-3, 1e-9);
  EXPECT_NEAR(p.Point(1).tpot_ms, 3 * 426 * 1e-3, 1e-9)
      << "three in flight wait for the slowest stage";
  EXPECT_NEAR(p.Point(1).tokens_per_s, 3 / (3 * 426e-6), 1e-6);
  // Large batches are bound by arithmetic, 2 x 64 x 9 M at 10000 GOP/s, and their KV no longer
  // fits.
  const PredictedTimes many = p.Times(stage, 64);
  EXPECT_TRUE(many.compute_bound);
  EXPECT_NEAR(many.weights_us, 2 * 64 * 9e6 / 1e13 * 1e6, 1e-9);
  EXPECT_FALSE(many.kv_in_l3);
  EXPECT_NEAR(many.attention_us, 64 * 20, 1e-9);
  const std::string text = p.Text();
  for (const char* part :
       {"(the test)",
        "2 layers x (weights 10.00 MB / 100 GB/s L3 + attention 1.00 MB / 100 GB/s L3",
        "2 x (100.0 + 10.0 + 3.0 us) = 226.0 us", "10.00 MB / 50 GB/s memory",
        "head 2.00 MB / 100 GB/s L3 = 20.0 us", "5 us + 1.0 KB / 1 GB/s = 6.0 us, 3 a token",
        "226.0 + 426.0 + 20.0 + 3 x 6.0 us = 0.690 ms", "3 x slowest) = 1.278 ms"})
    EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in\n" << text;
}

TEST(PlanTest, ThreeStagesOnTwoServers) {
  const model::ModelConfig config = TenLayers();
  const Plan plan = PlanOf(kThree, config, "two-packages");
  ASSERT_EQ(plan.stages.size(), 3u);
  EXPECT_FALSE(plan.single());
  const Sizes layers = {4, 2, 4}, first = {0, 4, 6};
  for (size_t i = 0; i < 3; ++i) {
    const PlacedStage& stage = plan.stages[i];
    EXPECT_EQ(stage.layers, layers[i]);
    EXPECT_EQ(stage.first_layer, first[i]);
    EXPECT_EQ(stage.weight_bytes, layers[i] * LayerBytes(config)) << "no head in a stage";
    EXPECT_FALSE(stage.holds_lm_head);
    EXPECT_EQ(stage.plan.options.capacity.slots, 5u);
    EXPECT_EQ(stage.plan.options.capacity.context, 256u);
    EXPECT_EQ(stage.plan.options.capacity.max_batch_tokens, plan.capacity.max_batch_tokens);
    EXPECT_EQ(stage.plan.options.cores.size(), stage.cores);
  }
  EXPECT_EQ(plan.stages[0].attention, (std::vector<std::string>{"k1", "k2"}));
  ASSERT_EQ(plan.stages[0].plan.options.attention.size(), 2u);
  EXPECT_EQ(plan.stages[0].plan.options.attention[0].slots, 1u);
  EXPECT_EQ(plan.stages[0].plan.options.attention[1].slots, 4u);
  EXPECT_EQ(plan.stages[0].attention_cores, 4u);
  EXPECT_TRUE(plan.stages[1].attention.empty());
  EXPECT_EQ(plan.stages[1].server, "b");
  EXPECT_EQ(plan.stages[0].l3_budget_bytes, 3 * (uint64_t{64} << 20) / 4);
  EXPECT_EQ(plan.serving_server, "a");
  EXPECT_EQ(plan.serving_socket, "");
  EXPECT_EQ(plan.capacity.context, 256u);
  EXPECT_EQ(plan.capacity.slots, 5u);
  EXPECT_EQ(plan.capacity.max_in_flight, 4u);
  EXPECT_GE(plan.capacity.max_batch_tokens, 64u);
  EXPECT_EQ(&plan.stage_of_socket("k2"), &plan.stages[0]);
  EXPECT_EQ(&plan.stage_of_socket("c2"), &plan.stages[2]);
  EXPECT_NE(ErrorOf([&] { plan.stage_of_socket("x"); }).find("sockets are: w, k1, k2, c1, c2"),
            std::string::npos);
  // serving -> w -> c1 -> c2 -> serving
  ASSERT_EQ(plan.links.size(), 4u);
  const char* ends[] = {"", "w", "c1", "c2", ""};
  using enum rdma::Transport;
  const rdma::Transport transports[] = {kSharedMemory, kTcp, kSharedMemory, kTcp};
  const char* hosts[] = {"10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.1"};
  const uint16_t ports[] = {7171, 7171, 7172, 7170};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(plan.links[i].from, ends[i]);
    EXPECT_EQ(plan.links[i].to, ends[i + 1]);
    EXPECT_EQ(plan.links[i].transport, transports[i]) << i;
    EXPECT_EQ(plan.links[i].listener.host, hosts[i]);
    EXPECT_EQ(plan.links[i].listener.port, ports[i]);
  }
  const std::string table = plan.Table();
  EXPECT_NE(table.find("3+1: 3 with 2 to 4 layers each"), std::string::npos) << table;
  EXPECT_NE(table.find("\nbalance    stage "), std::string::npos) << table;
  const auto json = plan.Json();
  EXPECT_EQ(json["stages"][2]["first_layer"], 6);
  EXPECT_EQ(json["links"][1]["transport"], "tcp");
}

TEST(PlanTest, EveryProcessOfTheClusterAgreesAndOthersDoNot) {
  const model::ModelConfig config = TenLayers();
  const uint64_t hash = PlanOf(kThree, config, "two-packages").hash();
  EXPECT_EQ(PlanOf(kThree, config, "two-packages").hash(), hash);
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = kThree;
    text.replace(text.find(from), from.size(), to);
    return PlanOf(text, config, "two-packages").hash();
  };
  EXPECT_NE(changed("context = 256", "context = 512"), hash);
  EXPECT_NE(changed("slots = 5", "slots = 6"), hash);
  EXPECT_NE(changed("\"c1\"", "\"c3\""), hash);
  EXPECT_NE(changed("cores = \"l3:0\"", "cores = \"package:0\""), hash) << "other layers";
  EXPECT_EQ(changed("cores = \"l3:2\"", "cores = \"cores:4\""), hash) << "a server's own business";
  model::ModelConfig other = config;
  other.kinds[0].sizes.ffn += 32;
  EXPECT_NE(PlanOf(kThree, other, "two-packages").hash(), hash);
  Plan weights = PlanOf(kThree, config, "two-packages");
  weights.fingerprint = 1;
  EXPECT_NE(weights.hash(), hash);
  other = config;
  other.kinds[0].rotary.base *= 2;
  EXPECT_NE(PlanOf(kThree, other, "two-packages").hash(), hash) << "another rotation";
}

// The Plan contains what the engine runs; nothing is planned a second time.
TEST(PlanTest, CarriesWhatEachSocketRuns) {
  const model::ModelConfig config = TenLayers();
  const Plan plan = PlanOf(kThree, config, "two-packages");
  uint64_t bytes = 0;
  for (const PlacedStage& stage : plan.stages) {
    EXPECT_EQ(stage.plan.threads.size(), stage.cores);
    EXPECT_EQ(stage.plan.config.layers, stage.layers);
    EXPECT_EQ(stage.plan.config.first_layer, stage.first_layer);
    EXPECT_EQ(stage.plan.attention.size(), stage.attention.size());
    EXPECT_EQ(stage.plan.options.capacity.max_batch_tokens, plan.capacity.max_batch_tokens);
    bytes += stage.plan.weight_bytes;
  }
  EXPECT_EQ(plan.stages[0].machine, 0u);
  EXPECT_EQ(plan.stages[2].machine, 1u);
  EXPECT_EQ(plan.stages[0].attention_id("k2"), AttentionId(1));
  EXPECT_NE(ErrorOf([&] { plan.stages[0].attention_id("c1"); }).find("which has: 'k1', 'k2'"),
            std::string::npos);
  EXPECT_EQ(plan.ends.threads.size(), 1u);
  EXPECT_EQ(plan.ends.config.layers, 0u);
  EXPECT_TRUE(plan.ends.config.ends);
  EXPECT_EQ(plan.ends.options.capacity.context, plan.capacity.context);
  EXPECT_EQ(bytes + plan.ends.weight_bytes, plan.weight_bytes());
}

TEST(PlanTest, OneMachineWithoutAManifest) {
  PlanOptions options;
  options.threads = 3;
  const Plan plan = MakePlan(Shape("bench-24m"), TestMachine("two-packages"), options);
  EXPECT_TRUE(plan.single());
  ASSERT_EQ(plan.stages.size(), 1u);
  EXPECT_EQ(plan.stages[0].plan.threads.size(), 3u);
  EXPECT_TRUE(plan.stages[0].holds_lm_head);
  EXPECT_TRUE(plan.ends.threads.empty());
  EXPECT_EQ(plan.weight_bytes(), plan.stages[0].plan.weight_bytes);
  EXPECT_EQ(plan.kv_slot_bytes() * plan.capacity.slots, plan.stages[0].plan.kv_bytes);
  EXPECT_EQ(plan.serving_cores, 3u);
  EXPECT_EQ(plan.socket_notes, 0u) << "nobody wrote its socket";
}

// Windows of 256 in three layers of four: a third of the KV of 8,192 positions.
TEST(PlanTest, LayersWithWindowsKeepLittleKv) {
  model::ModelShape shape;
  shape.architecture = "exaone4";
  shape.layers = 8;
  shape.context = 8192;
  shape.window = 256;
  const model::ModelConfig config = model::ConfigOfShape(shape, "windows");
  PlanOptions options;
  options.threads = 2;
  options.capacity.slots = 3;
  options.capacity.context = 8192;
  options.capacity.max_batch_tokens = 256;
  const topology::Topology machine = TestMachine("two-packages");
  const Plan plan = MakePlan(config, machine, options);
  shape.window = 0;
  const Plan whole = MakePlan(model::ConfigOfShape(shape, "windows"), machine, options);
  EXPECT_EQ(whole.stages[0].plan.kv_classes.size(), 1u);
  EXPECT_EQ(plan.stages[0].plan.kv_classes, (std::vector<model::KvClass>{{0, 0}, {256, 3}}));
  EXPECT_EQ(plan.stages[0].plan.kv_pools, (Sizes{3 * 32, 3 * 3}));
  EXPECT_LE(static_cast<double>(plan.kv_slot_bytes()), 0.33 * whole.kv_slot_bytes());
  EXPECT_LE(static_cast<double>(plan.kv_bytes()), 0.33 * whole.kv_bytes());
  EXPECT_NE(plan.hash(), whole.hash());
  EXPECT_NE(plan.Table().find("2 layers with KV of 8192 tokens"), std::string::npos)
      << plan.Table();
  EXPECT_NE(plan.Table().find("6 layers of windows of 256 with KV of 768 tokens"),
            std::string::npos);
  EXPECT_EQ(whole.Table().find("layers with KV"), std::string::npos);
  EXPECT_EQ(plan.stages[0].plan.Json()["kv_classes"].size(), 2u);
  // Tokens of ended sequences are in all classes.
  options.capacity.slots = 1;
  options.cache_ram_bytes = 64 << 20;
  const StagePlan cached = MakePlan(config, machine, options).stages[0].plan;
  EXPECT_GE(cached.kv_pools[1], 4u);
  EXPECT_LE(cached.kv_bytes, plan.kv_slot_bytes() + (64 << 20) + (1 << 20));
}

// States are a class of memory: one for each slot, and some that are kept.
TEST(PlanTest, StatesAreKeptBesideThoseOfTheSlots) {
  PlanOptions options;
  options.threads = 2;
  options.capacity.slots = 4;
  options.capacity.context = 4096;
  const topology::Topology machine = TestMachine("two-packages");
  const StagePlan plan = MakePlan(Shape("bench-delta-1b"), machine, options).stages[0].plan;
  EXPECT_TRUE(plan.kv_classes.back().states);
  EXPECT_EQ(plan.states(), 4u + 12u);
  EXPECT_EQ(plan.kv_bytes, 4 * plan.kv_slot_bytes + 12 * plan.state_slot_bytes);
  EXPECT_NE(plan.Table().find("states     4 slots and 12 kept"), std::string::npos) << plan.Table();
  // --cache-ram is for keys, values and states.
  constexpr uint64_t kMore = uint64_t{1} << 30;
  options.cache_ram_bytes = kMore;
  const StagePlan cached = MakePlan(Shape("bench-delta-1b"), machine, options).stages[0].plan;
  EXPECT_GT(cached.states(), plan.states() + 5);
  EXPECT_NEAR(static_cast<double>(cached.kv_bytes - plan.kv_bytes), kMore, 0.05 * kMore);
}

TEST(PlanTest, OneMachineMayHaveMoreThreadsThanCores) {
  PlanOptions options;
  options.threads = 5;
  const Plan plan = MakePlan(Shape("bench-24m"), TestMachine("two-cores"), options);
  const std::vector<PlanThread>& threads = plan.stages[0].plan.threads;
  ASSERT_EQ(threads.size(), 5u);
  EXPECT_EQ(plan.stages[0].cores, 2u);
  for (size_t t = 0; t < threads.size(); ++t)
    EXPECT_EQ(threads[t].core, CoreId(static_cast<int32_t>(t % 2)));
}

TEST(PlanTest, LayersAsTheManifestSays) {
  const auto text = [](const char* first, const char* second) {
    return fmt::format(
        "[[server]]\nname = \"a\"\n[[server.socket]]\nname = \"x\"\nrole = \"colocated\"\ncores = "
        "\"cores:0\"\n"
        "layers = \"{}\"\n[[server.socket]]\nname = \"y\"\nrole = \"colocated\"\ncores = "
        "\"cores:1\"\n"
        "layers = \"{}\"\n",
        first, second);
  };
  const Plan plan = PlanOf(text("7-9", "0-6"), TenLayers(), "two-cores");
  EXPECT_EQ(plan.stages[0].socket, "y") << "in the order of the layers";
  EXPECT_EQ(plan.stages[0].layers, 7u);
  EXPECT_EQ(plan.stages[1].first_layer, 7u);
  EXPECT_EQ(plan.capacity.slots, 3u) << "one for each micro-batch in flight, since nothing is said";
  EXPECT_NE(ErrorOf([&] {
              PlanOf(text("0-6", "7-10"), TenLayers(), "two-cores");
            }).find("the model has 10 layers; expected the last stage to end with layer 9"),
            std::string::npos);
}

TEST(PlanTest, ServingSocketAndOneStage) {
  const std::string one =
      "[[server]]\nname = \"a\"\n[[server.socket]]\nname = \"x\"\nrole = \"colocated\"\ncores = "
      "\"package:0\"\n";
  const model::ModelConfig config = Shape("bench-24m");
  const Plan alone = PlanOf(one, config, "two-packages");
  EXPECT_TRUE(alone.single());
  EXPECT_TRUE(alone.links.empty());
  EXPECT_EQ(alone.capacity.max_in_flight, 1u);
  uint64_t l3_bytes = 0;
  for (const PlanL3Group& l3 : alone.stages[0].plan.l3_groups) l3_bytes += l3.l3_bytes;
  EXPECT_EQ(alone.stages[0].l3_bytes, l3_bytes);
  EXPECT_EQ(alone.stages[0].kv_room_bytes,
            l3_bytes - std::min(l3_bytes, alone.stages[0].weight_bytes));
  EXPECT_TRUE(alone.stages[0].holds_lm_head);
  EXPECT_EQ(alone.weight_bytes(), config.layers * LayerBytes(config) + LmHeadBytes(config));
  const Plan served =
      PlanOf(one + "[[server.socket]]\nname = \"s\"\nrole = \"serving\"\ncores = \"package:1\"\n",
             config, "two-packages");
  EXPECT_FALSE(served.single());
  EXPECT_EQ(served.serving_socket, "s");
  EXPECT_EQ(served.serving_cores, 4u);
  EXPECT_TRUE(served.serving_resident);
  EXPECT_EQ(served.links.size(), 2u);
  EXPECT_EQ(served.stages[0].weight_bytes, config.layers * LayerBytes(config));
  EXPECT_EQ(served.weight_bytes(), alone.weight_bytes());
}

TEST(PlanTest, RefusesAndNotes) {
  const model::ModelConfig big = Shape("llama-3.2-1b");
  EXPECT_FALSE(PlanOf(kThree, big, "two-packages").resident());
  std::string strict = kThree;
  strict.replace(strict.find("[model]\n"), 8, "[model]\nrequire_resident = true\n");
  EXPECT_NE(ErrorOf([&] {
              PlanOf(strict, big, "two-packages");
            }).find("require_resident = true forbids that"),
            std::string::npos);
  EXPECT_EQ(PlanOf(strict, TenLayers(), "two-packages").stages.size(), 3u) << "fits";
  model::ModelConfig two = TenLayers();
  two.layers = 2;
  EXPECT_NE(ErrorOf([&] { PlanOf(kThree, two, "two-packages"); }).find("2 layers for 3 sockets"),
            std::string::npos);
  std::string few = kThree;
  few.replace(few.find("slots = 5"), 9, "slots = 2");
  few.replace(few.find("slots = 4"), 9, "slots = 1");
  const Plan plan = PlanOf(few, TenLayers(), "two-packages");
  EXPECT_NE(plan.Table().find("2 slots for 4 micro-batches in flight: the pipeline is never full"),
            std::string::npos);
}

TEST(PlanTest, SocketsThatWereJoined) {
  const std::string text =
      "[[server]]\nname = \"a\"\n[[server.socket]]\nname = \"x\"\nrole = \"auto\"\ncores = "
      "\"package:0\"\n"
      "[[server.socket]]\nname = \"y\"\nrole = \"auto\"\ncores = \"package:1\"\n";
  const Plan plan = PlanOf(text, Shape("bench-24m"), "two-packages");
  ASSERT_TRUE(plan.single());
  EXPECT_EQ(plan.stages[0].cores, 8u);
  EXPECT_TRUE(plan.stages[0].attention.empty());
  // the message of `larder node --socket y`
  const std::string message = ErrorOf([&] { plan.stage_of_socket("y"); });
  EXPECT_NE(
      message.find("socket 'y' has role auto and its cores became part of socket 'x' (joined: "),
      std::string::npos)
      << message;
}

TEST(PlanTest, TheFileOfASocket) {
  const Manifest manifest = Manifest::Parse(kThree, "m.toml");
  EXPECT_EQ(ModelFileOf(manifest, "/models/m.gguf", "k2"), "/models/m.gguf") << "no folder";
  EXPECT_EQ(ModelFileOf(manifest, "/tmp", "k2"), "/tmp/w.gguf");
  EXPECT_EQ(ModelFileOf(manifest, "/tmp", "c2"), "/tmp/c2.gguf");
  EXPECT_EQ(ModelFileOf(manifest, "/tmp", ""), "/tmp/serving.gguf");
}

TEST(PlanTest, SlotsOfAttentionSocketsAreAlikeInEveryStage) {
  const auto text = [](size_t slots) {
    return fmt::format(
        "[model]\nslots = 3\n[[server]]\nname = \"a\"\n"
        "[[server.socket]]\nname = \"w1\"\nrole = \"weight\"\ncores = \"cores:0\"\n"
        "[[server.socket]]\nname = \"w2\"\nrole = \"weight\"\ncores = \"cores:1\"\n"
        "[[server.socket]]\nname = \"k1\"\nrole = \"attention\"\ncores = \"cores:2\"\nfor = "
        "\"w1\"\nslots = 1\n"
        "[[server.socket]]\nname = \"k2\"\nrole = \"attention\"\ncores = \"cores:3\"\nfor = "
        "\"w1\"\n"
        "[[server.socket]]\nname = \"k3\"\nrole = \"attention\"\ncores = \"cores:4\"\nfor = "
        "\"w2\"\nslots = {}\n"
        "[[server.socket]]\nname = \"k4\"\nrole = \"attention\"\ncores = \"cores:5\"\nfor = "
        "\"w2\"\n",
        slots);
  };
  EXPECT_EQ(PlanOf(text(1), TenLayers(), "two-packages").stages.size(), 2u);
  EXPECT_NE(ErrorOf([&] {
              PlanOf(text(2), TenLayers(), "two-packages");
            }).find("the attention sockets of 'w2' and of 'w1' differ in their slots"),
            std::string::npos);
}

}  // namespace
}  // namespace larder::pipeline::plan

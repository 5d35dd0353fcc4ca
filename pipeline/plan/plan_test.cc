#include "pipeline/plan/plan.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "pipeline/plan/layer_split.h"
#include "pipeline/plan/plan_testing.h"
#include "topology/machines_testing.h"
#include "weight_node/shard_plan.h"

namespace larder::pipeline::inline plan {
namespace {

using Sizes = std::vector<size_t>;

constexpr uint64_t kMb = 1000 * 1000;

// Sockets whose times are their layers divided by `speeds`.
StageCost CostOf(const std::vector<uint64_t>& speeds) {
  return [speeds](size_t stage, size_t, size_t count) { return 1000 * count / speeds[stage]; };
}

TEST(ClusterLayers, TheSlowestSocketIsAsFastAsItCanBe) {
  const auto split = [](size_t layers, const std::vector<uint64_t>& speeds, size_t together = 1) {
    return SplitLayers(layers, speeds.size(), together, CostOf(speeds));
  };
  EXPECT_EQ(SplitEvenly(28, 4, 1), (Sizes{7, 7, 7, 7}));
  EXPECT_EQ(SplitEvenly(30, 4, 1), (Sizes{8, 8, 7, 7})) << "equal divisions: more in front";
  EXPECT_EQ(SplitEvenly(80, 80, 1), Sizes(80, 1));
  EXPECT_EQ(split(12, {30, 10}), (Sizes{9, 3}));
  EXPECT_EQ(split(12, {10, 30, 20}), (Sizes{2, 6, 4}));
  EXPECT_EQ(split(4, {1000, 1, 1}), (Sizes{2, 1, 1})) << "every stage has a layer";
  // Layers that attend to each other's keys and values are not divided.
  EXPECT_EQ(split(12, {1, 1}, 7), (Sizes{5, 7}));
  EXPECT_EQ(split(12, {1, 3}, 7), (Sizes{3, 9}));
  EXPECT_EQ(split(12, {3, 1}, 7), (Sizes{5, 7}));
  EXPECT_EQ(split(8, {1, 1, 1}, 6), (Sizes{1, 1, 6}));
  // A layer that takes as long as five others; the others are even.
  const auto heavy = [](size_t, size_t first, size_t count) {
    return count + (first <= 2 && 2 < first + count ? 4 : 0);
  };
  EXPECT_EQ(SplitLayers(10, 3, 1, heavy), (Sizes{2, 2, 6}));
  EXPECT_EQ(ErrorOf([] { SplitEvenly(8, 4, 6); }),
            "plan: 8 layers for 4 sockets that hold weights, and the last 6 layers belong to one, "
            "since they share keys and values; expected at most 3 sockets");
  EXPECT_NE(ErrorOf([] { SplitEvenly(3, 4, 1); }).find("3 layers for 4 sockets"),
            std::string::npos);
  EXPECT_NE(ErrorOf([] { SplitEvenly(3, 0, 1); }).find("3 layers for 0 sockets"),
            std::string::npos);
}

// Of costs that are not even monotone, no other division has a cheaper most expensive stage.
TEST(ClusterLayers, NoOtherDivisionIsFaster) {
  const size_t layers = 11;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const auto cost = [&](size_t stage, size_t first, size_t count) {
      return (seed * 7919 + stage * 104729 + first * 1299709 + count * 15485863) % 1009;
    };
    const Sizes split = SplitLayers(layers, 3, 1, cost);
    ASSERT_EQ(split[0] + split[1] + split[2], layers);
    const auto slowest = [&](size_t a, size_t b) {
      return std::max({cost(0, 0, a), cost(1, a, b), cost(2, a + b, layers - a - b)});
    };
    for (size_t a = 1; a < layers; ++a) {
      for (size_t b = 1; a + b < layers; ++b)
        EXPECT_LE(slowest(split[0], split[1]), slowest(a, b)) << seed << ": " << a << " " << b;
    }
  }
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

// 8B on five sockets of three servers like the paper's, of which the first has another one for
// attention. By number (7, 7, 6, 6, 6) one stage has its KV cache in memory; the first one has room
// for eight layers, and the others for six with theirs.
TEST(ClusterLayers, AreSplitByTimeOnFiveSocketsOfEpyc) {
  const model::ModelConfig config = model::ConfigOfShape(model::ShapeByName("llama-3.1-8b"), "8B",
                                                         model::MatrixTypesByName("q4_0"));
  const auto machine = topology::ByDescription("amd-genoax-2xEPYC-9V33X-azure-hbv4");
  const auto plan_of = [&](const Sizes& layers, bool serving = true) {
    std::string text = "[model]\ncontext = 6144\nl3_fraction = 0.92\n";
    size_t next = 0, stages = 0;
    const auto add = [&](const char* role, int package) {
      text +=
          fmt::format("[[server.socket]]\nname = \"s{}\"\nrole = \"{}\"\ncores = \"package:{}\"\n",
                      stages, role, package);
      if (!layers.empty()) {
        text += fmt::format("layers = \"{}-{}\"\n", next, next + layers[stages] - 1);
        next += layers[stages];
      }
      ++stages;
    };
    for (const char* server : {"a", "b", "c"}) {
      text += fmt::format("[[server]]\nname = \"{0}\"\naddress = \"{0}\"\n", server);
      if (server[0] == 'a') {
        add("weight", 0);
        text += "[[server.socket]]\nname = \"kv\"\nrole = \"attention\"\ncores = \"package:1\"\n";
      } else {
        add("colocated", 0);
        add("colocated", 1);
      }
    }
    if (serving)
      text +=
          "[[server]]\nname = \"d\"\naddress = \"d\"\n"
          "[[server.socket]]\nname = \"serving\"\nrole = \"serving\"\ncores = \"all\"\n";
    const Manifest manifest = Manifest::Parse(text, "m.toml");
    const std::vector<topology::Topology> machines(manifest.servers.size(), machine);
    return MakePlan(manifest, config, {}, machines);
  };
  const auto us_of = [](const Plan& plan, size_t stage) {
    return plan.prediction.Times(plan.prediction.stages[stage], 1).stage_us;
  };
  const Plan plan = plan_of({});
  EXPECT_TRUE(plan.layers_by_time);
  Sizes split;
  for (const PlacedStage& stage : plan.stages) split.push_back(stage.layers);
  EXPECT_EQ(split, (Sizes{8, 6, 6, 6, 6}));
  // Time by number of layers, of the first socket and of the others, as a Plan predicts it.
  std::vector<double> first(29), other(29);
  for (size_t n = 1; n <= 28; ++n) {
    const Plan of = plan_of({n, 29 - n, 1, 1, 1});
    first[n] = us_of(of, 0);
    other[29 - n] = us_of(of, 1);
  }
  double best = 1e9, mine = 0;
  for (size_t a = 1; a <= 28; ++a)
    for (size_t b = 1; a + b <= 29; ++b)
      for (size_t c = 1; a + b + c <= 30; ++c)
        for (size_t d = 1; a + b + c + d <= 31; ++d)
          best = std::min(
              best, std::max({first[a], other[b], other[c], other[d], other[32 - a - b - c - d]}));
  for (size_t i = 0; i < 5; ++i) mine = std::max(mine, us_of(plan, i));
  EXPECT_NEAR(mine, best, 1e-6);
  EXPECT_LT(1.05 * mine, other[7]) << "as the slowest of 7, 7, 6, 6, 6 takes";
  const Plan named = plan_of({7, 7, 6, 6, 6});
  EXPECT_FALSE(named.layers_by_time);
  EXPECT_EQ(named.stages[0].layers, 7u) << "what the manifest says";
  EXPECT_NE(plan.hash(), named.hash());
  EXPECT_EQ(plan.hash(), plan_of(split).hash()) << "the same layers, whoever divided them";
  EXPECT_NE(plan.Table().find("so that the slowest stage is fastest: 8, 4 x 6; the slowest stage, "
                              "s0 takes "),
            std::string::npos)
      << plan.Table();
  // Whoever serves without a socket of its own takes turns with the first stage, which has fewer
  // layers then.
  const Plan joined = plan_of({}, false);
  EXPECT_TRUE(joined.serves_beside);
  EXPECT_FALSE(plan.serves_beside);
  EXPECT_LT(joined.stages[0].layers, plan.stages[0].layers);
  const PredictedPoint point = joined.prediction.Point(1);
  EXPECT_LE(us_of(joined, 0) + joined.prediction.Times(joined.prediction.stages.back(), 1).stage_us,
            other[7]);
  EXPECT_NEAR(point.tpot_ms, 6e-3 * other[7], 1e-9);
}

// A machine of two packages of which nobody said how it shall be used: a model that fills both runs
// over both, one that is done sooner than packages hear of each other on one of them. -t and
// machines of one package leave nothing to choose.
TEST(MachineUse, FollowsFromThePredictedTime) {
  const auto machine = topology::Topology::FromSynthetic(
      "[numa(memory=0)] package:2 l3:12(size=100663296) core:8 pu:1");
  const auto plan_of = [&](const char* shape, const PlanOptions& options) {
    return MakePlan(
        model::ConfigOfShape(model::ShapeByName(shape), shape, model::MatrixTypesByName("q8_0")),
        machine, options);
  };
  PlanOptions options;
  options.capacity.context = 512;
  const Plan large = plan_of("llama-3.2-1b", options);
  EXPECT_EQ(large.stages[0].plan.threads.size(), 192u);
  EXPECT_EQ(large.stages[0].packages, (PackageSpan{2, 2, false}));
  EXPECT_TRUE(large.use.starts_with("one pool over 2 packages; predicted, 1 sequence at full"))
      << large.use;
  EXPECT_GT(large.prediction.Times(large.prediction.stages[0], 1).packages_us, 0);
  const Plan small = plan_of("bench-24m", options);
  EXPECT_EQ(small.stages[0].plan.threads.size(), 96u) << small.use;
  EXPECT_EQ(small.prediction.Times(small.prediction.stages[0], 1).packages_us, 0);
  options.threads = 192;
  const Plan asked = plan_of("bench-24m", options);
  EXPECT_EQ(asked.stages[0].plan.threads.size(), 192u);
  EXPECT_TRUE(asked.use.empty());
  // Slower memory for all of it, or a slower way between packages, never makes a step faster.
  const Prediction& p = large.prediction;
  Prediction slower = p;
  slower.speeds.package_hop_us *= 2;
  EXPECT_GT(slower.Point(1).alone_ms, p.Point(1).alone_ms);
  EXPECT_EQ(p.MemoryGbps(192, 2), 2 * p.MemoryGbps(96, 1));
}

TEST(MachineUse, WeightsAndKvApart) {
  const auto machine = topology::Topology::FromSynthetic(
      "[numa(memory=0)] package:2 l3:12(size=100663296) core:8 pu:1");
  const std::vector<MachineUse> uses = UsesOf(machine, {});
  ASSERT_EQ(uses.size(), 3u);
  const model::ModelConfig config = model::ConfigOfShape(model::ShapeByName("llama-3.2-1b"), "1B",
                                                         model::MatrixTypesByName("q8_0"));
  const Plan plan = MakePlan(uses[2].manifest, config, {}, std::span(&machine, 1));
  EXPECT_TRUE(plan.single());
  EXPECT_TRUE(plan.stages[0].plan.separated());
  EXPECT_EQ(plan.stages[0].packages, (PackageSpan{1, 1, true}));
  EXPECT_EQ(UsesOf(topology::Topology::FromSynthetic("package:1 l3:2 core:2 pu:1"), {}).size(), 1u);
  EXPECT_EQ(UsesOf(topology::Topology::FromSynthetic("package:4 l3:1 core:2 pu:1"), {}).size(), 2u);
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

// Layers that share keys and values stay together, whatever they need: the others are divided as if
// there were no more.
TEST(ClusterShape, LayersThatCannotBeDividedTakeOneSocket) {
  const Plan plan = PlanUniformCluster(Shape("gemma-4-e2b"), {96, uint64_t{1152} << 20}, {}, {});
  const auto layers_of = [](const Plan& of) {
    Sizes layers;
    for (const PlacedStage& stage : of.stages) layers.push_back(stage.layers);
    return layers;
  };
  EXPECT_EQ(layers_of(plan), (Sizes{13, 22}));
  EXPECT_TRUE(plan.stages[0].resident);
  EXPECT_FALSE(plan.stages[1].resident);
  EXPECT_NE(plan.Table().find("layers 13-34 share keys and values, so that they cannot be divided"),
            std::string::npos)
      << plan.Table();
  const Plan four = PlanUniformCluster(Shape("gemma-4-e4b"), {96, uint64_t{1152} << 20}, {}, {});
  EXPECT_EQ(layers_of(four), (Sizes{8, 7, 7, 20}));
  const Plan fits = PlanUniformCluster(Shape("gemma-4-e2b"), {96, uint64_t{2304} << 20}, {}, {});
  EXPECT_EQ(layers_of(fits), (Sizes{13, 22}));
  EXPECT_TRUE(fits.resident());
  EXPECT_EQ(fits.Table().find("cannot be divided"), std::string::npos);
}

// What steps read in all is what they read of each stage, and the head; of experts, fewer than all.
TEST(ClusterShape, SaysWhatATokenReadsInAll) {
  const model::ModelConfig config = Shape("qwen3-30b-a3b");
  const Plan plan = PlanUniformCluster(config, {96, uint64_t{1152} << 20}, {}, {});
  ASSERT_GT(plan.stages.size(), 1u);
  const auto read = [&](size_t rows) {
    return static_cast<double>(plan.lm_head_bytes) +
           weight_node::LayerReadBytes(config, 0, config.layers, rows);
  };
  EXPECT_NEAR(plan.Json()["read_bytes_per_token"], read(1), 1);
  EXPECT_LT(read(1), 0.2 * static_cast<double>(plan.weight_bytes()));
  EXPECT_NE(plan.Table().find(fmt::format("\nread       every step reads {:.2f}, one of 1 row "
                                          "{:.2f}, one of 8 rows {:.2f}, one of 32 rows {:.2f} MB",
                                          read(0) * 1e-6, read(1) * 1e-6, read(8) * 1e-6,
                                          read(32) * 1e-6)),
            std::string::npos)
      << plan.Table();
  const Plan dense = PlanUniformCluster(Shape("llama-2-7b"), {96, 1152 * kMb}, {}, {});
  EXPECT_NE(dense.Table().find(fmt::format("\nread       {:.2f} MB per token\n",
                                           static_cast<double>(dense.weight_bytes()) * 1e-6)),
            std::string::npos)
      << dense.Table();
}

// A layer of 1.5 GB needs two L3 groups of one socket; two sockets would not help.
TEST(ClusterShape, ANoteAboutGroupsDoesNotSpeakOfTheModel) {
  const uint64_t l3_bytes = uint64_t{1152} << 20;
  const Plan plan = PlanUniformCluster(Shape("mixtral-8x7b"), {96, l3_bytes}, {}, {});
  EXPECT_EQ(plan.stages.size(), 32u);
  EXPECT_NE(plan.Table().find("; a socket of 2 such groups would hold its layers"),
            std::string::npos)
      << plan.Table();
  EXPECT_EQ(plan.Table().find("groups would hold the model"), std::string::npos);
  const Plan whole = MakePlan(Shape("llama-3.2-1b"), TestMachine("two-packages"), {});
  EXPECT_NE(whole.stages[0].plan.Table().find("such groups would hold the model"),
            std::string::npos);
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

TEST(PlanTest, AttentionOnAnotherServer) {
  const Plan plan = PlanOf(kAttentionElsewhere, TenLayers(), "two-packages");
  ASSERT_EQ(plan.stages.size(), 1u);
  const PlacedStage& stage = plan.stages[0];
  EXPECT_EQ(stage.attention, (std::vector<std::string>{"near", "far"}));
  EXPECT_EQ(stage.attention_machines, (std::vector<size_t>{0, 1}));
  EXPECT_TRUE(stage.attention_elsewhere());
  const auto& sockets = stage.plan.attention;
  EXPECT_FALSE(sockets[0].elsewhere);
  EXPECT_TRUE(sockets[1].elsewhere);
  EXPECT_EQ(sockets[0].slots, 1u);
  EXPECT_EQ(sockets[1].slots, 3u);
  EXPECT_GT(sockets[1].threads.size(), sockets[0].threads.size());
  uint64_t kv_bytes = 0;  // here
  for (const PlanNode& node : stage.plan.nodes) kv_bytes += node.kv_bytes;
  EXPECT_EQ(kv_bytes, sockets[0].kv_bytes);
  EXPECT_EQ(&plan.stage_of_socket("far"), &stage);

  const Prediction& p = plan.prediction;
  const PredictedStage& predicted = p.stages[0];
  const model::LayerSpec& layer = plan.config.layer(0);
  EXPECT_EQ(predicted.returned_bytes, layer.attended_size() * sizeof(float));
  EXPECT_GE(predicted.sent_bytes,
            (layer.sizes.heads + 2 * layer.sizes.kv_heads) * layer.sizes.head_size * sizeof(float));
  EXPECT_NEAR(p.Times(predicted, 4).exchange_us,
              2 * p.speeds.link_latency_us +
                  4e-3 * static_cast<double>(predicted.sent_bytes + predicted.returned_bytes) /
                      p.speeds.link_gbps,
              1e-9);
  // It pays where attention takes longer than the links.
  PredictedStage slow = predicted;
  slow.kv_bytes = 1'000'000'000;
  slow.cores = 1;
  slow.kv_cores = 100;
  EXPECT_NE(p.ExchangeText(slow).find("pays from batch 1\n"), std::string::npos)
      << p.ExchangeText(slow);
  const auto make_little = [](PredictedStage& of) {
    of.kv_bytes = 1;
    of.head_positions = of.head_elements = 0;
    of.appended_elements = 0;
  };
  make_little(slow);
  EXPECT_NE(p.ExchangeText(slow).find("does not pay"), std::string::npos) << p.ExchangeText(slow);
  EXPECT_NE(plan.Table().find("near, far (another server's)"), std::string::npos) << plan.Table();
  EXPECT_FALSE(sockets[0].link_cpu.valid());
  EXPECT_FALSE(sockets[1].link_cpu.valid()) << "both packages have sockets";
  EXPECT_NE(plan.Table().find("links weights - far: a thread at each end, no core left for it; no"),
            std::string::npos)
      << plan.Table();

  const nlohmann::json exchange = plan.Json()["stages"][0]["exchange"];
  EXPECT_EQ(exchange["sent_bytes"], predicted.sent_bytes);
  EXPECT_EQ(exchange["returned_bytes"], predicted.returned_bytes);
  EXPECT_EQ(exchange["exchange_us"], p.Times(predicted, exchange["batch"]).exchange_us);
  EXPECT_EQ(exchange["pays_from_batch"], exchange["batch"]);
  Plan little = plan;
  make_little(little.prediction.stages[0]);
  EXPECT_TRUE(little.Json()["stages"][0]["exchange"]["pays_from_batch"].is_null());
  EXPECT_FALSE(
      PlanOf(kThree, TenLayers(), "two-packages").Json()["stages"][0].contains("exchange"));
}

// Of two equal stages the one whose attention is on another server has fewer layers, so many fewer
// that no other division is faster.
TEST(PlanTest, AStageThatPaysForLinksHasFewerLayers) {
  model::ModelShape shape = model::ShapeByName("bench-24m");
  shape.layers = 40;
  const model::ModelConfig config = model::ConfigOfShape(shape, "forty layers");
  const auto server = [](int number) {
    return fmt::format("[[server]]\nname = \"s{0}\"\naddress = \"10.0.0.{0}\"\n", number);
  };
  const auto socket = [](const char* name, const char* role, int package, std::string more) {
    return fmt::format(
        "[[server.socket]]\nname = \"{}\"\nrole = \"{}\"\ncores = \"package:{}\"\n{}", name, role,
        package, more);
  };
  // first: layers of the first stage; 0: the Plan decides.
  const auto plan_of = [&](bool elsewhere, size_t first) {
    const std::string front = first == 0 ? "" : fmt::format("layers = \"0-{}\"\n", first - 1);
    const std::string back = first == 0 ? "" : fmt::format("layers = \"{}-39\"\n", first);
    std::string text = server(1) + socket("w1", "weight", 0, front);
    const std::string kv = socket("kv1", "attention", 1, "for = \"w1\"\n");
    if (!elsewhere) text += kv;
    text += server(2) + socket("w2", "weight", 0, back) + socket("kv2", "attention", 1, "");
    if (elsewhere) text += server(3) + kv;
    return PlanOf(text, config, "two-packages");
  };
  const auto slowest_us = [](const Plan& plan) {
    const Prediction& p = plan.prediction;
    return std::max(p.Times(p.stages[0], 1).stage_us, p.Times(p.stages[1], 1).stage_us);
  };
  EXPECT_EQ(plan_of(false, 0).stages[0].layers, 20u);
  const Plan plan = plan_of(true, 0);
  EXPECT_LT(plan.stages[0].layers, 20u);
  for (size_t first = 17; first <= 20; ++first)
    EXPECT_LE(slowest_us(plan), slowest_us(plan_of(true, first))) << first;
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

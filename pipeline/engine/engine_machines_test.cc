// Engines on described machines that this one is not: several packages, NUMA nodes and L3 groups.
// Their threads share the cores there are, so nothing here is about speed: the bits are those of
// one thread, and threads meet, and memory is asked for, where the machine's parts are.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "base/memory.h"
#include "pipeline/engine/chain_testing.h"
#include "pipeline/plan/plan.h"
#include "pipeline/stage/stage_testing.h"
#include "topology/this_machine_testing.h"

namespace larder::pipeline::inline engine {
namespace {

using topology::Topology;

struct Machine {
  const char* name;
  const char* description;
  std::set<int> hidden;  // CPUs
  size_t threads;        // that it has
  friend void PrintTo(const Machine& machine, std::ostream* out) { *out << machine.name; }
};

const std::vector<Machine>& Machines() {
  static const std::vector<Machine> machines = {
      {"TwoPackages",
       "package:2 numa:2(memory=8GiB indexes=2,3,0,1) l3:3(size=32MiB) core:2 pu:1",
       {},
       24},
      {"GroupsOfOne", "package:1 [numa(memory=8GiB)] l3:5(size=16MiB) core:1 pu:1", {}, 5},
      {"NodesInAGroup", "package:1 l3:1(size=96MiB) numa:2(memory=8GiB) core:3 pu:1", {}, 6},
      {"Ragged",
       "package:2 [numa(memory=8GiB)] l3:2(size=32MiB) core:4 pu:1",
       {1, 2, 3, 9, 14, 15},
       10},
  };
  return machines;
}

// The threads whose arrival each thread should wait for: in each L3 group the first one waits for
// the others, in each package its first one for the first of each group, and thread 0 for the first
// of each package; few threads in one group wait for each other.
std::vector<std::vector<int>> Meetings(const Topology& machine, std::span<const CoreId> cores) {
  std::map<L3GroupId, std::vector<int>> groups;
  for (size_t t = 0; t < cores.size(); ++t)
    groups[machine.core(cores[t]).l3_group].push_back(static_cast<int>(t));
  std::vector<std::vector<int>> waits(cores.size());
  if (groups.size() == 1 && cores.size() <= 4) {
    for (size_t t = 0; t < cores.size(); ++t) {
      for (size_t other = 0; other < cores.size(); ++other)
        if (other != t) waits[t].push_back(static_cast<int>(other));
    }
    return waits;
  }
  std::map<int, std::set<int>> packages;  // the first of each group
  for (const auto& [id, threads] : groups) {
    const int first = threads.front();
    waits[static_cast<size_t>(first)].insert(waits[static_cast<size_t>(first)].end(),
                                             threads.begin() + 1, threads.end());
    packages[machine.core(cores[static_cast<size_t>(first)]).package].insert(first);
  }
  for (const auto& [package, firsts] : packages) {
    const int first = *firsts.begin();
    waits[static_cast<size_t>(first)].insert(waits[static_cast<size_t>(first)].end(),
                                             std::next(firsts.begin()), firsts.end());
    if (first != 0) waits[0].push_back(first);
  }
  for (std::vector<int>& of : waits) std::ranges::sort(of);
  return waits;
}

void ExpectMeetings(const threadpool::Pool& pool, const Topology& machine,
                    std::span<const CoreId> cores) {
  const std::vector<std::vector<int>> expected = Meetings(machine, cores);
  ASSERT_EQ(pool.threads(), static_cast<int>(cores.size()));
  std::set<L3GroupId> groups;
  for (const CoreId core : cores) groups.insert(machine.core(core).l3_group);
  EXPECT_EQ(pool.groups(), static_cast<int>(groups.size()));
  std::set<int> packages;
  for (const CoreId core : cores) packages.insert(machine.core(core).package);
  EXPECT_EQ(pool.barrier().packages(), static_cast<int>(packages.size()));
  for (int t = 0; t < pool.threads(); ++t)
    EXPECT_EQ(pool.barrier().WaitsFor(t), expected[static_cast<size_t>(t)]) << "thread " << t;
}

class EngineMachinesTest : public testing::TestWithParam<Machine> {
 protected:
  EngineMachinesTest()
      : machine_(Topology::FromSynthetic(GetParam().description, GetParam().hidden)) {}

  // Prefill in chunks of two sizes and a few tokens one by one: both forms of the Program.
  static std::vector<float> Logits(Engine& engine, const std::vector<int32_t>& tokens,
                                   SlotId slot = SlotId(0)) {
    std::vector<float> all = RunChunks(engine, tokens, 100, slot);
    for (const size_t chunk : {7, 1}) {
      const std::vector<int32_t> few(tokens.begin(), tokens.begin() + 21);
      const std::vector<float> more = RunChunks(engine, few, chunk, slot);
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }

  const Topology machine_;
};

TEST_P(EngineMachinesTest, HasSoManyCores) {
  EXPECT_EQ(machine_.cores().size(), GetParam().threads);
}

TEST_P(EngineMachinesTest, BitsAreThoseOfOneThread) {
  const TestModel model(AwkwardModel());
  const std::vector<int32_t> tokens = TestTokens(130, 301);
  const std::vector<float> expected = Logits(*MakeEngine(model.file(), {}), tokens);
  for (const size_t threads : {GetParam().threads, size_t{3}}) {
    auto colocated =
        MakeEngine(model.file(), {.threads = threads, .few_rows = 8, .machine = &machine_});
    EXPECT_EQ(FirstDifference(Logits(*colocated, tokens), expected), "") << threads;
    auto separated = MakeEngine(model.file(), {.threads = threads,
                                               .slots = 2,
                                               .attention = {{threads, 1}, {2, 1}},
                                               .machine = &machine_});
    for (const int32_t slot : {0, 1})
      EXPECT_EQ(FirstDifference(Logits(*separated, tokens, SlotId(slot)), expected), "") << threads;
  }
}

TEST_P(EngineMachinesTest, BitsOfAChainAreThoseOfOneThread) {
  const TestModel model(FourLayers());
  const std::vector<int32_t> tokens = TestTokens(40, 301);
  const std::vector<float> expected = Logits(*MakeEngine(model.file(), {}), tokens);
  const size_t threads = std::min<size_t>(GetParam().threads, 8);
  const TestChain test =
      MakeTestChain(*model.file(), {{1, threads}, {3, 3, {{threads, 1}}}}, 1, 3, 64, 0, &machine_);
  auto chain = MakeChainEngine(model.file(), test);
  EXPECT_EQ(FirstDifference(Logits(*chain, tokens), expected), "");
}

// Panels that are cut, experts, latents, and states beside windows: what has flags, barriers or
// memory of its own.
TEST_P(EngineMachinesTest, BitsOfOtherLayersAreThoseOfOneThread) {
  const auto shape = [](const char* family, auto&& change) {
    model::SynthOptions options = AwkwardModel();
    options.shape.architecture = family;
    options.shape.dim = 128;
    options.shape.head_size = 32;
    options.shape.tied = false;
    change(options.shape);
    return options;
  };
  const std::vector<model::SynthOptions> models = {
      shape("llama",
            [](model::ModelShape& s) {
              s.dim = 96;
              s.ffn = 8192;
            }),
      shape("qwen3moe", [](model::ModelShape&) {}),
      shape("deepseek2", [](model::ModelShape&) {}),
      shape("qwen35", [](model::ModelShape& s) { s.layers = 4; }),
      shape("gemma3", [](model::ModelShape& s) { s.window = 50; }),
  };
  const std::vector<int32_t> tokens = TestTokens(110, 301);
  for (const model::SynthOptions& options : models) {
    const TestModel model(options);
    const std::vector<float> expected = Logits(*MakeEngine(model.file(), {}), tokens);
    auto engine = MakeEngine(model.file(),
                             {.threads = GetParam().threads, .few_rows = 8, .machine = &machine_});
    EXPECT_EQ(FirstDifference(Logits(*engine, tokens), expected), "") << options.shape.architecture;
  }
}

TEST_P(EngineMachinesTest, ThreadsMeetInTheirL3Groups) {
  const TestModel model(AwkwardModel());
  for (const size_t threads : {GetParam().threads, size_t{3}}) {
    const std::vector<CoreId> cores = machine_.PickCores(threads);
    auto colocated = MakeEngine(model.file(), {.threads = threads, .machine = &machine_});
    ExpectMeetings(colocated->packed().pool(), machine_, cores);
    auto separated = MakeEngine(
        model.file(),
        {.threads = 2, .slots = 2, .attention = {{threads, 1}, {2, 1}}, .machine = &machine_});
    ExpectMeetings(separated->packed().pool(), machine_, machine_.PickCores(2));
    ExpectMeetings(StageTesting::Served(separated->stage(), AttentionId(0)).pool(), machine_,
                   cores);
  }
}

// Of the attention sockets each weight thread reads a line for each L3 group, and nobody else
// writes to it; in the group the first thread waits for the others.
TEST_P(EngineMachinesTest, TheWayBackFromAttentionHasALineForEachL3Group) {
  const TestModel model(AwkwardModel());
  const size_t threads = GetParam().threads;
  auto engine = MakeEngine(
      model.file(),
      {.threads = 3, .slots = 2, .attention = {{threads, 1}, {2, 1}}, .machine = &machine_});
  const CpuStage& stage = CpuStage::Of(engine->stage());
  const Exchange& exchange = StageTesting::ExchangeOf(stage);
  const auto groups_of = [&](size_t n) {
    std::map<L3GroupId, std::vector<size_t>> groups;
    const std::vector<CoreId> cores = machine_.PickCores(n);
    for (size_t t = 0; t < n; ++t) groups[machine_.core(cores[t]).l3_group].push_back(t);
    return groups;
  };
  using Flags = std::set<const sync::EpochFlag*>;
  const std::vector<size_t> sockets = {threads, 2};
  for (size_t half = 0; half < kHalves; ++half) {
    Flags all;
    for (size_t socket = 0; socket < sockets.size(); ++socket) {
      const AttentionId id(static_cast<int32_t>(socket));
      const AttentionSocket& served = StageTesting::Served(stage, id);
      const auto groups = groups_of(sockets[socket]);
      EXPECT_EQ(stage.plan().attention[socket].groups(), groups.size());
      for (const auto& [l3_group, members] : groups) {
        // Signalled by the first of the group alone, once a layer, after all others.
        Flags announced, awaited;
        for (const size_t t : members) {
          size_t signals = 0;
          for (const threadpool::Step& step : served.steps(t, kHalves)) {
            if (step.kernel != nullptr || step.part % kHalves != half) continue;
            ASSERT_NE(step.signal, nullptr);
            ++signals;
            if (t != members.front()) {
              announced.insert(step.signal);
              EXPECT_EQ(step.wait_count, 0u) << "thread " << t;
            } else {
              all.insert(step.signal);
              for (uint32_t w = 0; w < step.wait_count; ++w) awaited.insert(step.waits[w]);
            }
          }
          EXPECT_EQ(signals, stage.plan().config.layers) << "thread " << t;
        }
        EXPECT_EQ(awaited, announced);
        EXPECT_EQ(announced.size(), members.size() - 1);
      }
    }
    EXPECT_EQ(all.size(), groups_of(sockets[0]).size() + groups_of(sockets[1]).size());
    for (size_t t = 0; t < 3; ++t) {
      size_t meetings = 0;
      for (const threadpool::Step& step : stage.steps(weight_node::ProgramForm::kFewRows, t, 2)) {
        if (step.kind != static_cast<uint16_t>(model::StepKind::kAttention)) continue;
        const Flags waits(step.waits, step.waits + step.wait_count);
        if (!waits.contains(exchange.attended(half, AttentionId(0), 0))) continue;
        ++meetings;
        EXPECT_EQ(waits, all);
      }
      EXPECT_EQ(meetings, stage.plan().config.layers);
    }
  }
}

// The paper's sockets: what their readiness takes fits the L2 of a core.
TEST(EngineMachines, FlagsOfTwoLargeSocketsFitL2) {
  const Topology machine =
      Topology::FromSynthetic("package:2 [numa(memory=192GiB)] l3:12(size=96MiB) core:8 pu:1");
  for (const char* name : {"llama-3.2-3b", "llama-2-7b"}) {
    const model::ModelConfig config = model::ConfigOfShape(model::ShapeByName(name), name);
    PlanOptions options;
    std::vector<CoreId> cores;
    for (const topology::Core& core : machine.cores()) cores.push_back(core.id);
    options.cores.assign(cores.begin(), cores.begin() + 96);
    options.attention.push_back({"kv", {cores.begin() + 96, cores.end()}, {}, 1, false});
    const StagePlan plan = MakeStagePlan(config, machine, options);
    const SegmentShape shape(plan);
    EXPECT_EQ(plan.attention[0].groups(), 12u);
    EXPECT_LE(shape.exchange.flag_bytes(), size_t{128} << 10) << name;
  }
}

TEST_P(EngineMachinesTest, MemoryIsAskedForOnTheNodesOfItsThreads) {
  const TestModel model(AwkwardModel());
  const size_t threads = GetParam().threads;
  const std::vector<CoreId> cores = machine_.PickCores(threads);
  const auto node = [&](size_t t) { return machine_.core(cores[t]).numa_node; };
  auto colocated = MakeEngine(model.file(), {.threads = threads, .machine = &machine_});
  const weight_node::WeightNode& weights = colocated->packed().weights();
  const weight_node::Activations& activations = weights.activations();
  for (size_t t = 0; t < threads; ++t) {
    EXPECT_EQ(weights.shards(t).arena().node(), node(t)) << "thread " << t;
    for (const void* own : {static_cast<const void*>(activations.threads[t].dim.data),
                            static_cast<const void*>(activations.threads[t].ffn_tile.data),
                            static_cast<const void*>(activations.threads[t].head.plane[0].data)})
      EXPECT_EQ(activations.arenas().NodeOf(own), node(t)) << "thread " << t;
  }
  EXPECT_EQ(activations.arenas().NodeOf(activations.x.data), node(0));
  const attention_node::AttentionNode& attention = StageTesting::Attention(colocated->stage());
  std::set<NumaNodeId> nodes;
  for (size_t t = 0; t < threads; ++t) nodes.insert(node(t));
  const std::vector<NumaNodeId> all(nodes.begin(), nodes.end());
  EXPECT_EQ(attention.scratch().nodes(), all);
  EXPECT_EQ(attention.rotations().nodes(), all) << "a copy on each";
  // Keys and values lie where most of those that attend to them are.
  const auto expect_homes = [&](const attention_node::KvRegion& kv,
                                const model::ModelConfig& config) {
    for (size_t layer = 0; layer < config.layers; ++layer) {
      for (size_t head = 0; head < config.layer(layer).sizes.kv_heads; ++head) {
        const auto owners = attention_node::OwnersOfGroup(config.layer(layer), head, threads);
        std::map<NumaNodeId, size_t> on;
        for (size_t t = owners.begin; t < owners.end; ++t) ++on[node(t)];
        const NumaNodeId home = kv.arenas().NodeOf(kv.chunk(SlotId(0), 0, layer, head).keys);
        for (const auto& [other, count] : on) EXPECT_GE(on[home], count) << layer << ", " << head;
      }
    }
  };
  expect_homes(attention.kv(), colocated->plan().config);
  auto separated =
      MakeEngine(model.file(), {.threads = 1, .attention = {{threads, 1}}, .machine = &machine_});
  expect_homes(StageTesting::Served(separated->stage(), AttentionId(0)).kv(),
               separated->plan().config);
}

// States lie where the threads are that update them.
TEST_P(EngineMachinesTest, StatesAreAskedForOnTheNodesOfTheirThreads) {
  model::SynthOptions options = AwkwardModel();
  options.shape.architecture = "qwen35";
  options.shape.layers = 4;
  options.shape.dim = 128;
  options.shape.head_size = 32;
  options.shape.tied = false;
  const TestModel model(options);
  const size_t threads = GetParam().threads;
  const std::vector<CoreId> cores = machine_.PickCores(threads);
  auto engine = MakeEngine(model.file(), {.threads = threads, .machine = &machine_});
  const attention_node::KvRegion& kv = StageTesting::Attention(engine->stage()).kv();
  const model::ModelConfig& config = engine->plan().config;
  size_t states = 0;
  for (size_t layer = 0; layer < config.layers; ++layer) {
    const model::LayerSpec& spec = config.layer(layer);
    if (!spec.recurrent()) continue;
    const size_t group = spec.state_sizes().group();
    for (size_t nth = 0; nth < spec.state_sizes().heads; ++nth, ++states) {
      const size_t head = model::ValueHead(spec, nth / group, nth % group);
      const size_t owner = attention_node::OwnerOfState(spec, nth, threads);
      EXPECT_EQ(kv.arenas().NodeOf(kv.state(SlotId(0), layer, head)),
                machine_.core(cores[owner]).numa_node)
          << layer << ", " << head;
    }
  }
  EXPECT_GT(states, 0u);
}

// On the machine as it is: run in a guest of two nodes by test/rack/guest_tests.py.
TEST(EngineHomes, PagesLieOnTheNodesOfTheirThreads) {
  LARDER_NEEDS_THIS_MACHINE();
  const Topology machine = Topology::Detect();
  const size_t threads = machine.cores().size();
  if (machine.numa_nodes().size() < 2 || threads < 4)
    GTEST_SKIP() << "needs two NUMA nodes of two cores";
  const std::vector<CoreId> cores = machine.PickCores(threads);
  const auto node = [&](size_t t) { return machine.core(cores[t]).numa_node; };
  std::set<NumaNodeId> nodes;
  for (size_t t = 0; t < threads; ++t) nodes.insert(node(t));
  ASSERT_GE(nodes.size(), 2u);
  model::SynthOptions options = AwkwardModel();
  options.shape.heads = 8;
  options.shape.kv_heads = 4;
  const TestModel model(options);
  const std::vector<int32_t> tokens = TestTokens(30, 301);
  const auto expected = RunChunks(*MakeEngine(model.file(), {}), tokens, 8);
  const auto expect_kv = [&](const attention_node::KvRegion& kv, const model::ModelConfig& config,
                             size_t of_threads, const auto& node_of) {
    std::map<NumaNodeId, size_t> heads;
    for (size_t layer = 0; layer < config.layers; ++layer) {
      for (size_t head = 0; head < config.layer(layer).sizes.kv_heads; ++head) {
        const auto owners = attention_node::OwnersOfGroup(config.layer(layer), head, of_threads);
        const attention_node::KvChunk at = kv.chunk(SlotId(0), 0, layer, head);
        EXPECT_EQ(topology::NodeOfPage(at.keys), node_of(owners.begin)) << layer << ", " << head;
        EXPECT_EQ(topology::NodeOfPage(at.values), node_of(owners.begin)) << layer << ", " << head;
        ++heads[node_of(owners.begin)];
      }
    }
    EXPECT_GE(heads.size(), 2u) << "heads on one node show nothing";
  };

  {  // its thread 0 is this one, pinned as long as it lives
    auto colocated = MakeEngine(model.file(), {.threads = threads});
    EXPECT_EQ(FirstDifference(RunChunks(*colocated, tokens, 8), expected), "");
    const weight_node::WeightNode& weights = colocated->packed().weights();
    for (size_t t = 0; t < threads; ++t) {
      const topology::Arena& panels = weights.shards(t).arena();
      for (size_t at = 0; at < panels.used_bytes(); at += kPageBytes)
        ASSERT_EQ(topology::NodeOfPage(panels.data() + at), node(t))
            << "thread " << t << ", byte " << at;
      EXPECT_EQ(topology::NodeOfPage(weights.activations().threads[t].dim.data), node(t))
          << "thread " << t;
    }
    EXPECT_EQ(topology::NodeOfPage(weights.activations().x.data), node(0));
    expect_kv(StageTesting::Attention(colocated->stage()).kv(), colocated->plan().config, threads,
              node);
  }

  // Weights on two cores of the first node, attention on a core of each.
  const auto first_on = [&](NumaNodeId wanted) {
    return *std::ranges::find(cores, wanted,
                              [&](CoreId core) { return machine.core(core).numa_node; });
  };
  const std::vector<CoreId> attending = {first_on(*nodes.begin()), first_on(*nodes.rbegin())};
  auto separated =
      MakeEngine(model.file(), {.threads = 2, .attention = {{.threads = 2, .cores = attending}}});
  EXPECT_EQ(FirstDifference(RunChunks(*separated, tokens, 8), expected), "");
  expect_kv(StageTesting::Served(separated->stage(), AttentionId(0)).kv(), separated->plan().config,
            2, [&](size_t t) { return machine.core(attending[t]).numa_node; });
  separated.reset();

  // As a machine of packages may be used without a manifest. What weights and KV exchange lies with
  // the weights.
  for (const MachineUse& use : UsesOf(machine, {})) {
    PlanOptions planned;
    planned.capacity.context = 64;
    const Plan plan = MakePlan(use.manifest, model::ReadModelConfig(*model.file()), planned,
                               std::span(&machine, 1));
    const StagePlan& stage = plan.stages[0].plan;
    ChainOptions chain;
    chain.wait = kTestWait;
    Engine engine(model.file(), stage, chain);
    EXPECT_EQ(FirstDifference(RunChunks(engine, tokens, 8), expected), "") << use.what;
    for (size_t t = 0; t < stage.threads.size(); ++t)
      EXPECT_EQ(topology::NodeOfPage(engine.packed().weights().shards(t).arena().data()),
                stage.threads[t].numa_node)
          << use.what << ", thread " << t;
    if (!stage.separated()) continue;
    const NumaNodeId kv_node = stage.attention[0].threads[0].numa_node;
    EXPECT_NE(kv_node, stage.threads[0].numa_node);
    const auto rows = StageTesting::ExchangeOf(engine.stage()).rows();
    EXPECT_EQ(topology::NodeOfPage(rows.qkv.data), stage.threads[0].numa_node);
    const attention_node::KvChunk at =
        StageTesting::Served(engine.stage(), AttentionId(0)).kv().chunk(SlotId(0), 0, 0, 0);
    EXPECT_EQ(topology::NodeOfPage(at.keys), kv_node);
  }
}

INSTANTIATE_TEST_SUITE_P(Described, EngineMachinesTest, testing::ValuesIn(Machines()),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace larder::pipeline::engine

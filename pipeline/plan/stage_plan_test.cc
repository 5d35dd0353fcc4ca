// Plans for real machines: where MakeStagePlan puts the threads, shards and budgets of a 3B-shaped
// model. Known machines, made from descriptions, are checked against general rules and against what
// is known of them; so is every XML file of the topology folder, if it is present.
#include "pipeline/plan/stage_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>

#include "kernels/formats/panel_format.h"
#include "pipeline/manifest/manifest_testing.h"
#include "pipeline/plan/identity.h"
#include "topology/machines_testing.h"

namespace larder::pipeline::inline plan {
namespace {

using topology::Topology;
using weight_node::PanelMatrix;

const model::ModelConfig& Llama3b() {
  static const model::ModelConfig config =
      model::ConfigOfShape(model::ShapeByName("llama-3.2-3b"), "test");
  return config;
}

StagePlan PlanFor(const Topology& machine, size_t threads = 0) {
  PlanOptions options;
  options.threads = threads;
  options.capacity.context = 4096;
  options.isa = kernels::Isa::kScalar;  // the plan does not depend on the machine that tests run on
  return MakeStagePlan(Llama3b(), machine, options);
}

// Packed bytes of rows x columns, from the format's own description: panels of 16 rows, blocks of
// 32 columns.
uint64_t PackedBytes(uint64_t rows, uint64_t columns) {
  return CeilDiv(rows, kernels::kPanelRows) *
         kernels::kQ8Panel.bytes(CeilDiv(columns, kernels::kBlock));
}

// Packed bytes of the whole model, computed without shards. 3B's dimensions are multiples of all
// granules, so there is no padding.
uint64_t ModelBytes(const model::ModelConfig& c) {
  const uint64_t layer =
      PackedBytes(
          (c.kinds[0].sizes.heads + 2 * c.kinds[0].sizes.kv_heads) * c.kinds[0].sizes.head_size,
          c.dim) +
      PackedBytes(c.dim, c.kinds[0].sizes.heads * c.kinds[0].sizes.head_size) +
      PackedBytes(2 * c.kinds[0].sizes.ffn, c.dim) + PackedBytes(c.dim, c.kinds[0].sizes.ffn);
  return c.layers * layer + PackedBytes(c.vocab, c.dim);
}

void ExpectThreadsOnePerCore(const StagePlan& plan, const Topology& machine) {
  std::set<CoreId> cores;
  std::set<CpuId> cpus;
  for (const PlanThread& thread : plan.threads) {
    EXPECT_TRUE(cores.insert(thread.core).second) << "core " << thread.core.value << " twice";
    EXPECT_TRUE(cpus.insert(thread.cpu).second) << "CPU " << thread.cpu.value << " twice";
    const topology::Core& core = machine.core(thread.core);
    EXPECT_EQ(thread.cpu, core.cpus.front()) << "an SMT sibling of core " << core.id.value;
    EXPECT_EQ(thread.numa_node, core.numa_node);
    const auto node = std::find_if(machine.numa_nodes().begin(), machine.numa_nodes().end(),
                                   [&](const auto& n) { return n.id == thread.numa_node; });
    ASSERT_NE(node, machine.numa_nodes().end());
    EXPECT_NE(std::find(node->cores.begin(), node->cores.end(), core.id), node->cores.end());
  }
}

// The threads' ranges, in order, are [0, count) without gap or overlap; a panel that is cut counts
// where its first chunks are.
void ExpectCovers(const StagePlan& plan, PanelMatrix matrix, size_t count, const char* what) {
  uint32_t next = 0;
  for (const auto& shard : plan.shards.threads) {
    EXPECT_EQ(shard.of(0, matrix).begin, next) << what;
    next = shard.of(0, matrix).end;
    for (const auto& part : shard.parts[0]) {
      if (part.matrix != matrix || !part.first()) continue;
      EXPECT_EQ(part.panel, next) << what;
      ++next;
    }
  }
  EXPECT_EQ(next, count) << what;
}

void ExpectShardsCoverTheModel(const StagePlan& plan) {
  const model::ModelConfig& c = plan.config;
  ASSERT_EQ(plan.shards.threads.size(), plan.threads.size());
  ExpectCovers(plan, PanelMatrix::kQkv,
               (c.kinds[0].sizes.heads + 2 * c.kinds[0].sizes.kv_heads) *
                   c.kinds[0].sizes.head_size / kernels::kPanelRows,
               "QKV");
  ExpectCovers(plan, PanelMatrix::kO, c.dim / kernels::kPanelRows, "O");
  ExpectCovers(plan, PanelMatrix::kFfn, c.kinds[0].sizes.ffn / kernels::kBlock, "FFN");
  ExpectCovers(plan, PanelMatrix::kDown, c.dim / kernels::kPanelRows, "down");
  ExpectCovers(plan, PanelMatrix::kLmHead, c.vocab / kernels::kPanelRows, "head");
}

void ExpectGroupsAndBudgets(const StagePlan& plan, const Topology& machine) {
  std::map<L3GroupId, uint64_t> bytes;
  std::map<L3GroupId, size_t> threads;
  int last = 0;
  for (const PlanThread& thread : plan.threads) {
    ASSERT_LT(static_cast<size_t>(thread.l3_group), plan.l3_groups.size());
    EXPECT_EQ(plan.l3_groups[static_cast<size_t>(thread.l3_group)].id,
              machine.core(thread.core).l3_group);
    EXPECT_TRUE(thread.l3_group == last || thread.l3_group == last + 1)
        << "a group's threads are not adjacent";
    last = thread.l3_group;
    bytes[machine.core(thread.core).l3_group] += thread.weight_bytes;
    ++threads[machine.core(thread.core).l3_group];
  }
  ASSERT_EQ(bytes.size(), plan.l3_groups.size()) << "a group is there twice, or without threads";
  uint64_t sum = 0;
  for (const PlanL3Group& group : plan.l3_groups) {
    const topology::L3Group& l3 = machine.l3_group(group.id);
    EXPECT_EQ(group.l3_bytes, l3.bytes);
    EXPECT_EQ(group.budget_bytes, l3.bytes * 3 / 4);
    EXPECT_EQ(group.weight_bytes, bytes[group.id]);
    EXPECT_LE(threads[group.id], l3.cores.size());
    EXPECT_EQ(group.resident(), l3.bytes != 0 && bytes[group.id] <= l3.bytes * 3 / 4);
    sum += group.weight_bytes;
  }
  EXPECT_EQ(sum, plan.weight_bytes);
  EXPECT_EQ(plan.weight_bytes, ModelBytes(plan.config));
}

// Shares are even: two threads differ by at most one granule of each matrix.
void ExpectBalanced(const StagePlan& plan) {
  const model::ModelConfig& c = plan.config;
  const uint64_t granules =
      c.layers * (5 * kernels::kQ8Panel.bytes(c.dim / kernels::kBlock) +
                  kernels::kQ8Panel.bytes(c.kinds[0].sizes.heads * c.kinds[0].sizes.head_size /
                                          kernels::kBlock) +
                  kernels::kQ8Panel.bytes(c.kinds[0].sizes.ffn / kernels::kBlock)) +
      kernels::kQ8Panel.bytes(c.dim / kernels::kBlock);
  uint64_t least = UINT64_MAX, most = 0;
  for (const PlanThread& thread : plan.threads) {
    least = std::min(least, thread.weight_bytes);
    most = std::max(most, thread.weight_bytes);
  }
  EXPECT_LE(most - least, granules);
}

bool HasNote(const StagePlan& plan, const std::string& part) {
  return std::any_of(plan.notes.begin(), plan.notes.end(),
                     [&](const std::string& note) { return note.find(part) != std::string::npos; });
}

void ExpectRules(const Topology& machine, size_t threads) {
  SCOPED_TRACE(fmt::format("{} threads", threads));
  const StagePlan plan = PlanFor(machine, threads);
  EXPECT_EQ(plan.threads.size(), threads == 0 ? machine.cores().size() : threads);
  ExpectThreadsOnePerCore(plan, machine);
  ExpectShardsCoverTheModel(plan);
  ExpectGroupsAndBudgets(plan, machine);
  ExpectBalanced(plan);
  // One note counts the groups that are too small, one those of unknown size; there is no note if
  // the count is 0.
  const auto unknown = std::count_if(plan.l3_groups.begin(), plan.l3_groups.end(),
                                     [](const auto& g) { return g.l3_bytes == 0; });
  const auto small = std::count_if(plan.l3_groups.begin(), plan.l3_groups.end(),
                                   [](const auto& g) { return g.l3_bytes != 0 && !g.resident(); });
  const std::string of = fmt::format(" of {} L3 groups: ", plan.l3_groups.size());
  EXPECT_EQ(HasNote(plan, fmt::format("{}{}their weights", small, of)), small > 0);
  EXPECT_EQ(HasNote(plan, "their weights"), small > 0);
  EXPECT_EQ(HasNote(plan, fmt::format("{}{}size unknown", unknown, of)), unknown > 0);
  EXPECT_EQ(HasNote(plan, "size unknown"), unknown > 0);
  if (threads == 0) {
    std::set<L3GroupId> used;
    for (const PlanL3Group& group : plan.l3_groups) used.insert(group.id);
    EXPECT_EQ(used.size(), machine.l3_groups().size()) << "thread groups are not the L3 groups";
  }
}

void ExpectRulesAtEverySize(const Topology& machine) {
  ExpectRules(machine, 0);
  const topology::Package& first = machine.packages()[0];
  for (const size_t threads : {size_t{1}, size_t{2}, first.l3_groups.size(), first.cores.size()}) {
    if (threads <= machine.cores().size()) ExpectRules(machine, threads);
  }
}

TEST(Placement, OfOwnMachines) {
  for (const char* name : {"two-packages", "two-cores", "no-l3"}) {
    SCOPED_TRACE(name);
    ExpectRulesAtEverySize(TestMachine(name));
  }
}

struct Machine {
  const char* name;
  size_t threads, groups, least_a_group, most_a_group;
  bool l3_known, resident;  // 3.4 GB of weights
};
void PrintTo(const Machine& machine, std::ostream* out) { *out << machine.name; }

constexpr Machine kMachines[] = {
    {"amd-genoax-2xEPYC-9V33X-azure-hbv4", 176, 24, 4, 8, true, false},
    {"amd-naples-1xEPYC-7451", 24, 8, 3, 3, true, false},
    {"amd-naples-2xEPYC-7451-from-util-linux", 48, 16, 3, 3, true, false},
    {"amd-rome-2xEPYC-7742-nps4-jusuf-jsfc070", 128, 32, 4, 4, true, false},
    {"amd-rome-2xEPYC-7H12-nps1-mel4001", 128, 32, 4, 4, true, false},
    {"amd-rome-2xEPYC-7H12-nps4-mel0001", 128, 32, 4, 4, true, false},
    {"arm-kunpeng920-2x64", 128, 4, 32, 32, true, false},
    {"arm-nvidia-gh200", 72, 1, 72, 72, false, false},
    {"arm-thunderx2-2x32core-smt4-hwloc1", 64, 2, 32, 32, true, false},
    {"cpuid-AMD-19h-Zen3-2xEpyc-7763", 128, 16, 8, 8, true, false},
    {"intel-broadwell-2xXeon-E5-2695v4", 36, 2, 18, 18, true, false},
    {"intel-cascadelake-2xXeon6230-optane-memorysidecache", 40, 2, 20, 20, true, false},
};

void ExpectGroups(const Topology& machine, const Machine& m) {
  const StagePlan plan = PlanFor(machine);
  EXPECT_EQ(plan.threads.size(), m.threads);
  ASSERT_EQ(plan.l3_groups.size(), m.groups);
  std::vector<size_t> threads(m.groups, 0);
  for (const PlanThread& thread : plan.threads) ++threads[static_cast<size_t>(thread.l3_group)];
  EXPECT_EQ(*std::min_element(threads.begin(), threads.end()), m.least_a_group);
  EXPECT_EQ(*std::max_element(threads.begin(), threads.end()), m.most_a_group);
  EXPECT_EQ(plan.l3_groups[0].l3_bytes != 0, m.l3_known);
  EXPECT_EQ(HasNote(plan, "size unknown"), !m.l3_known);
  EXPECT_EQ(plan.resident(), m.resident);
  EXPECT_EQ(plan.Json()["threads"].size(), m.threads);
}

TEST(StagePlanMemory, SaysHowToAskForOtherMachines) {
  const Topology machine =
      Topology::FromSynthetic("package:1 numa:1(memory=4GiB) l3:1(size=32MiB) core:2 pu:1");
  const auto config = model::ConfigOfShape(model::ShapeByName("llama-2-7b"), "7B");
  const std::string message = ErrorOf([&] { MakeStagePlan(config, machine, {}); });
  EXPECT_NE(message.find("but the machine has 4.29 GB of memory"), std::string::npos) << message;
  for (const char* option : {"--socket-l3", "--topology"})
    EXPECT_NE(message.find(option), std::string::npos) << message;
}

// Each node has its threads' weights and KV, and together they have all.
TEST(StagePlanNodes, HaveWhatTheirThreadsKeep) {
  const Topology machine =
      Topology::FromSynthetic("package:2 numa:2(memory=1GiB) l3:2(size=32MiB) core:2 pu:1");
  const auto check = [](const StagePlan& plan) {
    uint64_t weights = 0, kv = 0;
    std::map<NumaNodeId, uint64_t> of_threads;
    for (const PlanThread& thread : plan.threads)
      of_threads[thread.numa_node] += thread.weight_bytes;
    for (const PlanNode& node : plan.nodes) {
      weights += node.weight_bytes;
      kv += node.kv_bytes;
      EXPECT_EQ(node.weight_bytes, of_threads[node.id]);
    }
    EXPECT_EQ(weights, plan.weight_bytes);
    EXPECT_EQ(kv, plan.kv_bytes);
  };
  for (const char* shape : {"llama-3.2-1b", "qwen3.5-4b", "gemma-3-4b"}) {
    model::ModelShape small = model::ShapeByName(shape);
    small.layers = 6;
    const model::ModelConfig config = model::ConfigOfShape(small, shape);
    PlanOptions options;
    options.capacity = {.slots = 2, .context = 512};
    const StagePlan plan = MakeStagePlan(config, machine, options);
    ASSERT_EQ(plan.nodes.size(), 4u);
    check(plan);
    for (const PlanNode& node : plan.nodes) EXPECT_GT(node.kv_bytes, 0u) << node.id.value;
    EXPECT_EQ(plan.Json()["numa_nodes"].size(), 4u);
    EXPECT_NE(plan.Table().find("node       weights MB        KV MB"), std::string::npos);
  }
  const model::ModelConfig large =
      model::ConfigOfShape(model::ShapeByName("llama-3.2-3b"), "large");
  PlanOptions on_one_node;
  on_one_node.cores = {CoreId(0), CoreId(1)};
  EXPECT_TRUE(HasNote(MakeStagePlan(large, machine, on_one_node),
                      "NUMA node 0 has 1.07 GB of memory, its threads' weights and KV need"));
  PlanOptions separated;
  separated.cores = {CoreId(0), CoreId(1)};
  separated.attention.push_back({"a", {CoreId(4), CoreId(5), CoreId(8)}, {}, 1, false});
  const StagePlan plan = MakeStagePlan(
      model::ConfigOfShape(model::ShapeByName("bench-24m"), "bench-24m"), machine, separated);
  check(plan);
  ASSERT_EQ(plan.nodes.size(), 3u);
  EXPECT_EQ(plan.nodes[0].kv_bytes, 0u);
  EXPECT_EQ(plan.nodes[1].weight_bytes, 0u);
}

class PlacementOn : public testing::TestWithParam<Machine> {};

TEST_P(PlacementOn, HasItsGroups) {
  ExpectGroups(topology::ByDescription(GetParam().name), GetParam());
}

TEST_P(PlacementOn, KeepsTheRulesAtEverySize) {
  ExpectRulesAtEverySize(topology::ByDescription(GetParam().name));
}

INSTANTIATE_TEST_SUITE_P(Described, PlacementOn, testing::ValuesIn(kMachines),
                         [](const auto& machine) {
                           return topology::TestName(machine.param.name);
                         });

// Covers every machine of the folder, known or not.
TEST(Placement, OfEveryDumpInTheFolder) {
  LARDER_NEEDS_TEST_DATA(topology::DumpFolder());
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(topology::DumpFolder())) {
    if (entry.path().extension() != ".xml") continue;
    SCOPED_TRACE(entry.path().filename().string());
    ExpectRulesAtEverySize(Topology::FromXml(entry.path().string()));
    ++files;
  }
  EXPECT_GT(files, 0u) << topology::DumpFolder() << " holds no XML file";
  for (const Machine& machine : kMachines) {
    SCOPED_TRACE(machine.name);
    ExpectGroups(Topology::FromXml(topology::DumpOf(machine.name)), machine);
  }
}

// 2 x EPYC 9V33X: 12 L3 groups of 96 MB per package, with as many threads in each as the dump has
// cores there (the hypervisor keeps some cores, so not all groups have 8).
TEST(Placement, GenoaXHasTwelveGroupsAPackage) {
  const Topology machine = topology::ByDescription("amd-genoax-2xEPYC-9V33X-azure-hbv4");
  const StagePlan plan = PlanFor(machine);
  std::map<int, size_t> groups_of_package;
  std::map<L3GroupId, size_t> threads;
  for (const PlanL3Group& group : plan.l3_groups) {
    ++groups_of_package[machine.l3_group(group.id).package];
    EXPECT_EQ(group.l3_bytes, uint64_t{96} << 20);
    EXPECT_EQ(group.budget_bytes, uint64_t{72} << 20);
  }
  EXPECT_EQ(groups_of_package, (std::map<int, size_t>{{0, 12}, {1, 12}}));
  for (const PlanThread& thread : plan.threads) ++threads[machine.core(thread.core).l3_group];
  for (const topology::L3Group& group : machine.l3_groups())
    EXPECT_EQ(threads[group.id], group.cores.size());

  // One package: all its groups, and none of the other package.
  const StagePlan one = PlanFor(machine, machine.packages()[0].cores.size());
  EXPECT_EQ(one.l3_groups.size(), 12u);
  for (const PlanThread& thread : one.threads) EXPECT_EQ(machine.core(thread.core).package, 0);
}

// An L3 group over two NUMA nodes (sub-NUMA clustering) has one group of threads, half of whose
// arenas are on each node.
TEST(Placement, NodesOfAnL3GroupOverTwoNodes) {
  const Topology machine =
      topology::ByDescription("intel-cascadelake-2xXeon6230-optane-memorysidecache");
  std::map<int, std::map<int, size_t>> threads;  // by L3 group and node
  for (const PlanThread& thread : PlanFor(machine).threads)
    ++threads[thread.l3_group][thread.numa_node.value];
  EXPECT_EQ(threads, (std::map<int, std::map<int, size_t>>{{0, {{0, 10}, {2, 10}}},
                                                           {1, {{1, 10}, {3, 10}}}}));
}

// A weight socket and its attention sockets compare it: models of one shape that differ in their
// weights, or in how they rotate, do not connect.
TEST(StagePlan, TheHashTellsModelsOfOneShapeApart) {
  const Topology machine =
      topology::ByDescription("intel-cascadelake-2xXeon6230-optane-memorysidecache");
  const auto hash = [&](auto&& change) {
    StagePlan plan = MakeStagePlan(Llama3b(), machine, {});
    change(plan);
    return plan.ExchangeHash();
  };
  const uint64_t same = hash([](StagePlan&) {});
  EXPECT_EQ(hash([](StagePlan&) {}), same);
  EXPECT_NE(hash([](StagePlan& plan) { plan.fingerprint = 1; }), same);
  EXPECT_NE(hash([](StagePlan& plan) { plan.config.kinds[0].rotary.scale_factor = 8; }), same);
  EXPECT_NE(hash([](StagePlan& plan) {
              plan.config.kinds[0].rotary.scaling = model::RopeScaling::kYarn;
            }),
            same);
  EXPECT_NE(hash([](StagePlan& plan) {
              plan.config.kinds[0].rotary.pairing = model::RopePairing::kHalves;
            }),
            same);
  EXPECT_NE(hash([](StagePlan& plan) { plan.config.kinds[0].attention_divisor += 1; }), same);
  EXPECT_NE(hash([](StagePlan& plan) { ++plan.options.few_rows; }), same);
}

// What is stored of a computation is found again by the same one only.
TEST(Identity, IsOfTheWeightsTheDescriptionAndTheArithmetic) {
  const model::ModelConfig& config = Llama3b();
  const uint64_t same = IdentityOf(1, config);
  EXPECT_EQ(IdentityOf(1, Llama3b()), same);
  EXPECT_NE(IdentityOf(2, config), same);
  EXPECT_NE(IdentityOf(1, config, kernels::kArithmeticVersion + 1), same);
  EXPECT_NE(IdentityOf(1, model::LayersOf(config, 1, 2)), same);
  model::ModelConfig other = config;
  other.kinds[0].rotary.base *= 2;
  EXPECT_NE(IdentityOf(1, other), same);
  other = config;
  other.norm_epsilon *= 2;
  EXPECT_NE(IdentityOf(1, other), same);
  other = config;
  other.name = "of another file";
  EXPECT_EQ(IdentityOf(1, other), same);
}

// Tiles do not change results, so the two ends of a link may have different tunings; a StagePlan
// shows its own.
TEST(StagePlan, TilesAreNotPartOfTheHash) {
  const Topology machine =
      topology::ByDescription("intel-cascadelake-2xXeon6230-optane-memorysidecache");
  PlanOptions options;
  options.isa = kernels::Isa::kAvx2;
  const StagePlan plan = MakeStagePlan(Llama3b(), machine, options);
  ASSERT_TRUE(plan.options.tuning);
  EXPECT_EQ(plan.options.tuning->attention.tile_queries,
            kernels::DefaultTuning(kernels::Isa::kAvx2).attention.tile_queries);
  options.tuning = kernels::DefaultTuning(kernels::Isa::kAvx2);
  options.tuning->attention.tile_queries = 1;
  const StagePlan tuned = MakeStagePlan(Llama3b(), machine, options);
  EXPECT_EQ(tuned.options.tuning->attention.tile_queries, 1u);
  EXPECT_EQ(tuned.ExchangeHash(), plan.ExchangeHash());
}

// An expert sees few of a micro-batch's rows; stages of a chain would wait for long micro-batches.
TEST(StagePlan, WithExpertsAMicroBatchHasMoreRows) {
  const auto rows = [](const std::string& shape, bool alone) {
    return DefaultBatchTokens(model::ConfigOfShape(model::ShapeByName(shape), "test"),
                              Topology::Detect(), alone);
  };
  for (const auto* shape : {"llama-3.2-3b", "bench-moe-440m", "qwen3-30b-a3b", "mixtral-8x7b"}) {
    EXPECT_GE(rows(shape, false), 64u) << shape;
    EXPECT_LE(rows(shape, false), 256u) << shape;
  }
  EXPECT_EQ(rows("llama-3.2-3b", true), rows("llama-3.2-3b", false));
  EXPECT_EQ(rows("bench-moe-440m", true), 1024u);
  EXPECT_EQ(rows("qwen3-30b-a3b", true), 1024u);
  EXPECT_EQ(rows("mixtral-8x7b", true), 256u);  // 2 of 8 experts
}

TEST(StagePlan, WithExpertsItSaysWhatEveryStepReads) {
  const model::ModelConfig config =
      model::ConfigOfShape(model::ShapeByName("bench-moe-440m"), "moe");
  const auto table = [&](const char* machine) {
    return MakeStagePlan(config, Topology::FromSynthetic(machine),
                         {.threads = 2, .l3_fraction = 0.75})
        .Table();
  };
  const std::string fits = table("package:1 l3:1(size=32MiB) core:2 pu:1"),
                    does_not = table("package:1 l3:1(size=16MiB) core:2 pu:1");
  EXPECT_NE(fits.find("of which every step reads 24.94, one of 1 row 38.31, one of 8 rows 120.90"),
            std::string::npos)
      << fits;
  EXPECT_NE(fits.find("budget; what every step reads does, without experts\n"), std::string::npos)
      << fits;
  EXPECT_NE(does_not.find("not all weights fit their L3 budget\n"), std::string::npos) << does_not;
}

}  // namespace
}  // namespace larder::pipeline::plan

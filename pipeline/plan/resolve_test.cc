#include "pipeline/plan/resolve.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "attention_node/kv_region.h"
#include "pipeline/manifest/cores.h"
#include "pipeline/manifest/manifest.h"
#include "pipeline/manifest/manifest_testing.h"
#include "topology/machines_testing.h"

namespace larder::pipeline::inline plan {
namespace {

using topology::Topology;

// A server "a" with these sockets, each "name role cores [more keys]".
struct Socket {
  const char *name, *role, *cores, *more = "";
};
Manifest Make(const std::vector<Socket>& sockets, const std::string& model = "") {
  std::string text = "[model]\n" + model + "\n[[server]]\nname = \"a\"\n";
  for (const Socket& s : sockets) {
    text += fmt::format("[[server.socket]]\nname = \"{}\"\nrole = \"{}\"\ncores = \"{}\"\n{}\n",
                        s.name, s.role, s.cores, s.more);
  }
  return Manifest::Parse(text, "m.toml");
}

std::vector<ResolvedSocket> ResolveOn(const Topology& machine, const Manifest& manifest,
                                      std::vector<std::string>* warnings = nullptr,
                                      const model::ModelConfig* config = nullptr) {
  return Resolve(manifest, manifest.servers[0], machine, config, warnings);
}

std::vector<int> Numbers(const std::vector<CoreId>& ids) {
  std::vector<int> numbers;
  for (const CoreId id : ids) numbers.push_back(id.value);
  return numbers;
}
std::vector<int> Numbers(const std::vector<CpuId>& ids) {
  std::vector<int> numbers;
  for (const CpuId id : ids) numbers.push_back(id.value);
  return numbers;
}
using Ints = std::vector<int>;

TEST(ManifestResolve, EveryKindOfCoreSet) {
  const Topology machine = TestMachine("two-packages");
  struct Case {
    const char *cores, *more;
    Ints cores_of, cpus;
    int node;
  };
  for (const Case& c : {Case{"all", "", {0, 1, 2, 3, 4, 5, 6, 7}, {0, 2, 4, 6, 8, 10, 12, 14}, 0},
                        Case{"package:1", "", {4, 5, 6, 7}, {8, 10, 12, 14}, 1},
                        Case{"l3:1-2", "", {2, 3, 4, 5}, {4, 6, 8, 10}, 0},
                        Case{"l3:3,2", "", {4, 5, 6, 7}, {8, 10, 12, 14}, 1},
                        Case{"numa:1", "", {4, 5, 6, 7}, {8, 10, 12, 14}, 1},
                        Case{"cores: 7 , 0-1", "", {0, 1, 7}, {0, 2, 14}, 0},
                        Case{"cpus:3,8", "", {1, 4}, {3, 8}, 0},
                        Case{"cores:1,4", "smt = true", {1, 4}, {2, 3, 8, 9}, 0},
                        Case{"cpus:2-3", "smt = true", {1}, {2, 3}, 0}}) {
    SCOPED_TRACE(c.cores);
    std::vector<std::string> warnings;
    const auto sockets = ResolveOn(machine, Make({{"w", "colocated", c.cores, c.more}}), &warnings);
    ASSERT_EQ(sockets.size(), 1u);
    EXPECT_EQ(Numbers(sockets[0].cores), c.cores_of);
    EXPECT_EQ(Numbers(sockets[0].cpus), c.cpus);
    EXPECT_EQ(sockets[0].node.value, c.node);
    EXPECT_FALSE(sockets[0].isolated) << "an XML machine's isolcpus are not known";
    EXPECT_TRUE(warnings.empty());
  }
}

TEST(ManifestResolve, RefusesWhatTheMachineLacks) {
  const Topology machine = TestMachine("two-packages");
  struct Case {
    Socket socket;
    const char* part;
  };
  for (const Case& c :
       {Case{{"w", "colocated", "package:2"}, "cores = \"package:2\": "},
        Case{{"w", "colocated", "package:2"},
             "has no package 2 with cores that this process may use; expected some of 0-1"},
        Case{{"w", "colocated", "l3:0-4"}, "no L3 group 4"},
        Case{{"w", "colocated", "numa:9"}, "no NUMA node 9"},
        Case{{"w", "colocated", "cores:8"},
             "no core 8 with cores that this process may use; expected some of 0-7"},
        Case{{"w", "colocated", "cpus:16"},
             "no CPU 16 with cores that this process may use; expected some of 0-15"},
        Case{{"w", "colocated", "cpus:2-3"}, "CPUs 2 and 3 are SMT siblings of one core"},
        Case{{"w", "colocated", "all", "numa_node = 5"}, "numa_node = 5: "},
        Case{{"w", "colocated", "all", "numa_node = 5"},
             "has no such node; expected one of 0, 1"}}) {
    const std::string message = ErrorOf([&] { ResolveOn(machine, Make({c.socket})); });
    EXPECT_EQ(message.rfind("m.toml:5: server \"a\", socket \"w\": ", 0), 0u) << message;
    EXPECT_NE(message.find(c.part), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(ManifestResolve, WarnsOfOverlapsAndFarMemory) {
  const Topology machine = TestMachine("two-packages");
  std::vector<std::string> warnings;
  auto sockets = ResolveOn(
      machine, Make({{"w", "weight", "cores:0-3"}, {"kv", "attention", "cores:2-5"}}), &warnings);
  EXPECT_EQ(sockets.size(), 2u);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("m.toml:10: server \"a\", socket \"kv\": cores = \"cores:2-5\": 2 "
                             "cores are (first: core 2) also in socket \"w\": they will take "
                             "turns"),
            std::string::npos)
      << warnings[0];

  const std::string message = ErrorOf([&] {
    ResolveOn(machine, Make({{"w", "weight", "cores:0", "isolated = true"},
                             {"kv", "attention", "cores:0"}}));
  });
  EXPECT_NE(
      message.find("1 core is (first: core 0) also in socket \"w\", but isolated = true for \"w\""),
      std::string::npos)
      << message;

  warnings.clear();
  sockets =
      ResolveOn(machine, Make({{"w", "colocated", "package:0", "numa_node = 1\nisolated = true"}}),
                &warnings);
  EXPECT_EQ(sockets[0].node, NumaNodeId(1));
  EXPECT_TRUE(sockets[0].isolated);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("none of its cores is near this node (most are near node 0)"),
            std::string::npos);
}

TEST(ManifestResolve, SharesOutSlots) {
  const Topology machine = TestMachine("two-packages");
  auto slots = [&](const std::string& model, const char* second, const char* third) {
    Ints result;
    for (const auto& s : ResolveOn(machine, Make({{"w", "weight", "cores:0"},
                                                  {"k1", "attention", "cores:1"},
                                                  {"k2", "attention", "cores:2", second},
                                                  {"k3", "attention", "cores:3", third}},
                                                 model)))
      result.push_back(static_cast<int>(s.slots));
    return result;
  };
  EXPECT_EQ(slots("", "", ""), (Ints{0, 1, 1, 1}));
  EXPECT_EQ(slots("slots = 8", "", ""), (Ints{0, 3, 3, 2}));
  EXPECT_EQ(slots("slots = 8", "slots = 5", ""), (Ints{0, 2, 5, 1}));
  EXPECT_EQ(slots("", "slots = 5", "slots = 6"), (Ints{0, 1, 5, 6}));
  EXPECT_NE(ErrorOf([&] { slots("slots = 2", "", ""); }).find("slots = 2: "), std::string::npos);
  EXPECT_NE(ErrorOf([&] { slots("slots = 8", "slots = 7", ""); }).find("expected at least 9"),
            std::string::npos);
  const std::string message = ErrorOf([&] {
    ResolveOn(machine,
              Make({{"w", "weight", "cores:0"}, {"k", "attention", "cores:1", "slots = 3"}},
                   "slots = 4"));
  });
  EXPECT_NE(message.find("slots = 4: the sockets with the KV cache of \"w\" ask for 3; expected 3"),
            std::string::npos)
      << message;
}

// 24 MB of weights, and 24 MB of KV cache per thousand tokens.
model::ModelConfig Bench24m() {
  return model::ConfigOfShape(model::ShapeByName("bench-24m"), "test");
}

TEST(ManifestResolve, AutoByTheTextAlone) {
  const Topology machine = TestMachine("two-packages");
  struct Case {
    std::vector<Socket> sockets;
    std::vector<Role> roles;
  };
  const std::vector<Case> cases = {
      {{{"x", "auto", "all"}}, {Role::kColocated}},
      {{{"x", "auto", "cores:0"}, {"y", "auto", "cores:1"}}, {Role::kWeight, Role::kAttention}},
      {{{"x", "auto", "cores:0"}, {"y", "weight", "cores:1"}}, {Role::kAttention, Role::kWeight}},
      {{{"x", "attention", "cores:0"}, {"y", "auto", "cores:1"}, {"z", "auto", "cores:2"}},
       {Role::kAttention, Role::kWeight, Role::kAttention}},
  };
  for (const Case& c : cases) {
    const auto sockets = ResolveOn(machine, Make(c.sockets));
    ASSERT_EQ(sockets.size(), c.roles.size());
    for (size_t i = 0; i < sockets.size(); ++i) {
      EXPECT_EQ(sockets[i].role, c.roles[i]) << sockets[i].name;
      EXPECT_FALSE(sockets[i].reason.empty());
    }
  }
}

TEST(ManifestResolve, AutoSeparatesWhenTheKvCacheWouldPushTheWeightsOut) {
  const Topology machine = TestMachine("two-packages");  // 2 x 64 MB of L3, 48 MB of each for
                                                         // weights
  const model::ModelConfig config = Bench24m();
  const std::vector<Socket> autos = {{"x", "auto", "package:0"}, {"y", "auto", "package:1"}};
  auto run = [&](size_t context, size_t slots) {
    return ResolveOn(machine, Make(autos, fmt::format("context = {}\nslots = {}", context, slots)),
                     nullptr, &config);
  };
  const uint64_t kv_token = attention_node::KvShape(config, 1, 4096).bytes() / 4096;
  ASSERT_GT(kv_token, 512u);
  const auto joined = run(1024, 1);
  ASSERT_EQ(joined.size(), 1u);
  EXPECT_EQ(joined[0].role, Role::kColocated);
  EXPECT_EQ(joined[0].name, "x");
  EXPECT_EQ(joined[0].joined, std::vector<std::string>{"y"});
  EXPECT_EQ(Numbers(joined[0].cores), (Ints{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(Numbers(joined[0].cpus), (Ints{0, 2, 4, 6, 8, 10, 12, 14}));
  EXPECT_EQ(joined[0].slots, 1u);
  EXPECT_NE(joined[0].reason.find("fit the L3 budget together"), std::string::npos)
      << joined[0].reason;

  const size_t slots = (100u << 20) / (kv_token * 4096) + 2;  // more than 100 MB of KV cache
  const auto separated = run(4096, slots);
  ASSERT_EQ(separated.size(), 2u);
  EXPECT_EQ(separated[0].role, Role::kWeight);
  EXPECT_EQ(separated[1].role, Role::kAttention);
  EXPECT_EQ(separated[1].slots, slots);
  EXPECT_NE(separated[0].reason.find("would push the weights out"), std::string::npos)
      << separated[0].reason;

  // weights that one socket cannot hold anyway: all cores get them
  const model::ModelConfig big = model::ConfigOfShape(model::ShapeByName("llama-3.2-1b"), "test");
  std::vector<std::string> warnings;
  const auto all = ResolveOn(machine, Make(autos), &warnings, &big);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_NE(all[0].reason.find("exceed one socket's L3 budget"), std::string::npos)
      << all[0].reason;
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("they will stream from memory"), std::string::npos) << warnings[0];
}

TEST(ManifestResolve, ChecksTheL3Budget) {
  const Topology machine = TestMachine("two-packages");
  const model::ModelConfig config = Bench24m();
  auto message = [&](const Topology& on, const char* cores, const std::string& model,
                     const char* more = "") {
    std::vector<std::string> warnings;
    ResolveOn(on, Make({{"w", "colocated", cores, more}}, model), &warnings, &config);
    return warnings.empty() ? std::string() : warnings[0];
  };
  EXPECT_EQ(message(machine, "package:0", ""), "");
  const std::string small = message(machine, "l3:0", "", "l3_fraction = 0.5");  // 24 MB of weights
  EXPECT_EQ(
      small.rfind(
          "m.toml:5: server \"a\", socket \"w\": l3_fraction = 0.5: L3 group 0 would hold 2", 0),
      0u)
      << small;
  EXPECT_NE(small.find("budget of 16.8 MB (1 of 1 groups are too small)"), std::string::npos)
      << small;
  EXPECT_EQ(message(machine, "l3:0", "", "l3_fraction = 1"), "");
  EXPECT_NE(message(TestMachine("no-l3"), "all", "").find("the size of its L3 is not known"),
            std::string::npos);
  EXPECT_NE(ErrorOf([&] {
              message(machine, "l3:0", "require_resident = true\nl3_fraction = 0.5");
            }).find("budget of 16.8 MB (1 of 1 groups are too small)"),
            std::string::npos);
  EXPECT_NE(ErrorOf([&] {
              message(TestMachine("no-l3"), "all", "require_resident = true");
            }).find("require_resident"),
            std::string::npos);
  std::vector<std::string> warnings;
  // Two stages in one L3: by default each gets half of the fraction; together they exceed it only
  // by explicit keys.
  const auto two_stages = [&](const char* more) {
    warnings.clear();
    return ResolveOn(machine,
                     Make({{"w1", "weight", "cores:0", more},
                           {"w2", "weight", "cores:1", more},
                           {"k1", "attention", "cores:4", "for = \"w1\""},
                           {"k2", "attention", "cores:5", "for = \"w2\""}}),
                     &warnings, &config);
  };
  EXPECT_EQ(two_stages("")[1].l3_fraction, 0.375);
  EXPECT_EQ(two_stages("")[0].l3_sharers, 2u);
  EXPECT_EQ(warnings.size(), 0u) << warnings[0];
  EXPECT_EQ(two_stages("l3_fraction = 0.75")[1].l3_fraction, 0.75);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("sockets \"w1\", \"w2\" take 150 % of L3 group 0 together"),
            std::string::npos)
      << warnings[0];
}

TEST(ManifestResolve, StagesOfSeveralServers) {
  const Manifest m = Manifest::Load(LARDER_SOURCE_DIR "/deploy/examples/rack-4.toml");
  const Topology machine = TestMachine("two-packages");
  // Each of four stages has a quarter of the layers; 4 x 48 MB hold what one package cannot.
  model::ModelConfig config = Bench24m();
  config.layers = 12;
  config.kind_of.resize(config.layers, 0);
  config.types.layers.resize(config.layers, config.types.layers.front());
  std::vector<std::string> warnings;
  for (const ServerSpec& server : m.servers) {
    const auto sockets = Resolve(m, server, machine, &config, &warnings);
    ASSERT_EQ(sockets.size(), 2u);
    EXPECT_EQ(sockets[1].slots, 64u) << "a sequence has a part of its KV cache in every stage";
    EXPECT_TRUE(sockets[1].isolated);
  }
  EXPECT_TRUE(warnings.empty()) << warnings[0];
}

TEST(ManifestResolve, TopologyOfAServer) {
  Manifest m = Make({{"w", "colocated", "all"}});
  EXPECT_EQ(LoadTopology(m, m.servers[0]).source(), Topology::Detect().source());
  m.path = LARDER_SOURCE_DIR "/deploy/examples/m.toml";
  m.servers[0].topology = "../../pipeline/manifest/testdata/two-cores.xml";
  const Topology machine = LoadTopology(m, m.servers[0]);
  EXPECT_TRUE(machine.from_xml());
  EXPECT_EQ(machine.cores().size(), 2u);
  const auto sockets = ResolveOn(machine, m);
  EXPECT_EQ(Numbers(sockets[0].cores), (Ints{0, 1}));
}

TEST(ManifestResolve, TwelveL3GroupsOfARealPackage) {
  const Topology machine = topology::ByDescription("amd-genoax-2xEPYC-9V33X-azure-hbv4");
  const auto sockets =
      ResolveOn(machine, Make({{"w", "weight", "l3:0-11"}, {"k", "attention", "package:1"}}));
  EXPECT_EQ(sockets[0].cores.size(), machine.packages()[0].cores.size());
  std::set<int> groups;
  for (const CoreId id : sockets[0].cores) groups.insert(machine.core(id).l3_group.value);
  EXPECT_EQ(groups.size(), 12u);
  for (const CoreId id : sockets[1].cores) EXPECT_EQ(machine.core(id).package, 1);
}

TEST(ManifestExamples, ParseAndResolve) {
  struct Example {
    const char *file, *machine;
    std::vector<Role> roles;  // [server]
    size_t servers;
  };
  size_t checked = 0;
  for (const Example& e :
       {Example{"one-machine", "two-packages", {Role::kColocated}, 1},
        Example{"two-core-separated", "two-cores", {Role::kWeight, Role::kAttention}, 1},
        Example{"two-socket-server", "two-packages", {Role::kWeight, Role::kAttention}, 1},
        Example{"two-stage", "two-cores", {Role::kColocated, Role::kColocated}, 1},
        Example{"two-servers", "two-packages", {Role::kWeight, Role::kAttention}, 2},
        Example{"rack-4", "two-packages", {Role::kWeight, Role::kAttention}, 4}}) {
    SCOPED_TRACE(e.file);
    const Manifest m =
        Manifest::Load(std::string(LARDER_SOURCE_DIR "/deploy/examples/") + e.file + ".toml");
    EXPECT_EQ(m.name, e.file);
    EXPECT_EQ(m.servers.size(), e.servers);
    const topology::Topology machine = TestMachine(e.machine);
    for (const ServerSpec& server : m.servers) {
      std::vector<std::string> warnings;
      const auto sockets = Resolve(m, server, machine, nullptr, &warnings);
      ASSERT_EQ(sockets.size(), e.roles.size());
      for (size_t i = 0; i < sockets.size(); ++i) {
        EXPECT_EQ(sockets[i].role, e.roles[i]);
        EXPECT_EQ(sockets[i].slots, HoldsKv(sockets[i].role) ? m.slots : 0);
      }
      EXPECT_TRUE(warnings.empty()) << warnings[0];
    }
    ++checked;
  }
  size_t there = 0;
  for (const auto& file : std::filesystem::directory_iterator(LARDER_SOURCE_DIR "/deploy/examples"))
    there += file.path().extension() == ".toml" ? 1 : 0;
  EXPECT_EQ(there, checked) << "an example that this test does not know";
}

// Threads of links get cores that no socket of their server has, near ones first, each its own.
TEST(LinkThreads, HaveCoresOfTheirOwn) {
  const auto socket = [](const char* name, const char* role, const char* cores,
                         const char* of = "") {
    return fmt::format("[[server.socket]]\nname = \"{}\"\nrole = \"{}\"\ncores = \"{}\"\n{}", name,
                       role, cores, *of != 0 ? fmt::format("for = \"{}\"\n", of) : "");
  };
  const std::string text = "[[server]]\nname = \"w\"\naddress = \"10.0.0.1\"\n" +
                           socket("weights", "weight", "cores:4-6") +
                           socket("near", "attention", "cores:0-1") +
                           "[[server]]\nname = \"k\"\naddress = \"10.0.0.2\"\n" +
                           socket("far0", "attention", "cores:0-3", "weights") +
                           socket("far1", "attention", "package:1", "weights");
  const Manifest manifest = Manifest::Parse(text, "m.toml");
  const topology::Topology machine = TestMachine("two-packages");  // of four cores each
  const auto threads_of = [&](size_t server) {
    const ServerSpec& spec = manifest.servers[server];
    return LinkThreadsOf(manifest, spec, Resolve(manifest, spec, machine, nullptr, nullptr),
                         machine);
  };
  const std::vector<LinkThread> weights = threads_of(0), attention = threads_of(1);
  ASSERT_EQ(weights.size(), 2u);
  EXPECT_EQ(weights[0].socket, "weights");
  EXPECT_EQ(weights[0].attention, "far0");
  EXPECT_EQ(weights[0].cpu, machine.core(CoreId(7)).cpus.front()) << "the nearest";
  EXPECT_EQ(weights[1].attention, "far1");
  EXPECT_EQ(weights[1].cpu, machine.core(CoreId(2)).cpus.front()) << "of the other package";
  ASSERT_EQ(attention.size(), 2u);
  EXPECT_EQ(attention[1].socket, "far1");
  EXPECT_EQ(attention[1].attention, "far1");
  EXPECT_FALSE(attention[1].cpu.valid()) << "none is left";
}

}  // namespace
}  // namespace larder::pipeline::plan

#include "node/service_unit.h"

#include <gtest/gtest.h>

#include <sstream>

namespace larder::node {
namespace {

UnitFacts Facts() {
  UnitFacts facts{.manifest = "/etc/larder/cluster.toml",
                  .server = "node-a",
                  .socket = "a-weights",
                  .role = "weight",
                  .cores = "package:0"};
  for (const int cpu : {3, 0, 1, 2, 8}) facts.cpus.push_back(CpuId(cpu));
  facts.nodes = {NumaNodeId(0), NumaNodeId(1)};
  return facts;
}

bool Has(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

TEST(RangeList, JoinsNeighbours) {
  EXPECT_EQ(RangeList({}), "");
  EXPECT_EQ(RangeList({5}), "5");
  EXPECT_EQ(RangeList({4, 2, 3, 3, 0}), "0,2-4");
  EXPECT_EQ(RangeList({0, 1}), "0-1");
}

TEST(UnitDropIn, ConfinesToTheSocketsCpusAndNodes) {
  const std::string text = UnitDropIn(Facts());
  EXPECT_TRUE(Has(text, "AllowedCPUs=0-3,8")) << text;
  EXPECT_TRUE(Has(text, "CPUAffinity=0-3,8")) << text;
  EXPECT_TRUE(Has(text, "NUMAPolicy=bind")) << text;
  EXPECT_TRUE(Has(text, "NUMAMask=0-1")) << text;
  EXPECT_EQ(text.find("[Unit]"), text.npos) << "it connects to no other socket of its server";
  EXPECT_EQ(text.find("ExecStartPre"), text.npos) << "nothing is known of its bytes";
}

TEST(UnitDropIn, StartsAfterTheSocketsItConnectsTo) {
  UnitFacts facts = Facts();
  facts.before = {"a-attention", "b.2"};
  EXPECT_TRUE(Has(UnitDropIn(facts), "After=larder@a-attention.service larder@b.2.service"));
}

TEST(UnitDropIn, ReservesHugePagesWhereItPays) {
  UnitFacts facts = Facts();
  facts.resident_bytes = uint64_t{640} << 20;
  facts.node_memory[0] = {uint64_t{640} << 20, uint64_t{64} << 30};
  facts.node_memory[1] = {uint64_t{640} << 20, uint64_t{1} << 30};  // more than half of the node: no
  const std::string text = UnitDropIn(facts);
  // 320 pages and 1/64 for the rounding of each arena
  EXPECT_NE(text.find("-ge 325 ] || echo 325 >/sys/devices/system/node/node0/"), text.npos) << text;
  EXPECT_EQ(text.find("node1/hugepages"), text.npos) << text;
  facts.resident_bytes = uint64_t{200} << 20;
  EXPECT_EQ(UnitDropIn(facts).find("ExecStartPre"), std::string::npos);
}

TEST(UnitDropIn, EachSettingHasItsReason) {
  UnitFacts facts = Facts();
  facts.before = {"a-attention"};
  facts.resident_bytes = uint64_t{640} << 20;
  facts.node_memory[0] = {facts.resident_bytes, uint64_t{64} << 30};
  std::istringstream lines(UnitDropIn(facts));
  bool reason = false;
  int settings = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('#')) {
      reason = true;
    } else if (line.find('=') != line.npos) {
      EXPECT_TRUE(reason) << line;
      ++settings;
      // NUMAMask belongs to NUMAPolicy
      reason = line == "NUMAPolicy=bind";
    }
  }
  EXPECT_EQ(settings, 6);
}

}  // namespace
}  // namespace larder::node

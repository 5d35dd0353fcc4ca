#include "node/service/service_unit.h"

#include <gtest/gtest.h>

#include <sstream>

#include "base/error.h"

namespace larder::node::inline service {
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

TEST(UnitDropIn, MayUseTheCpusOfItsLinks) {
  UnitFacts facts = Facts();
  facts.link_cpus = {CpuId(9), CpuId(5)};
  const std::string text = UnitDropIn(facts);
  EXPECT_TRUE(Has(text, "AllowedCPUs=0-3,5,8-9")) << text;
  EXPECT_TRUE(Has(text, "CPUAffinity=0-3,8")) << text;
  EXPECT_NE(text.find(" Links to another server, for attention, have 5,9,"), text.npos) << text;
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
  // more than half of the node: none
  facts.node_memory[1] = {uint64_t{640} << 20, uint64_t{1} << 30};
  const std::string text = UnitDropIn(facts);
  // 320 pages and 1/64 for rounding up each arena.
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
      // These belong to the line before them.
      reason = line == "NUMAPolicy=bind" || line == "IPAddressDeny=any" ||
               line.starts_with("SocketBind");
    }
  }
  EXPECT_EQ(settings, 9);
}

constexpr const char* kRing =
    "[[server]]\nname = \"a\"\naddress = \"10.0.0.1\"\n"
    "[[server.socket]]\nname = \"a0\"\nrole = \"weight\"\ncores = \"cores:0\"\n"
    "[[server.socket]]\nname = \"a0-kv\"\nrole = \"attention\"\ncores = \"cores:1\"\n"
    "[[server.socket]]\nname = \"front\"\nrole = \"serving\"\ncores = \"cores:2\"\n"
    "[[server]]\nname = \"b\"\naddress = \"[fd00::2%eth0]:7000\"\n"
    "[[server.socket]]\nname = \"b0\"\nrole = \"colocated\"\ncores = \"cores:0\"\n"
    "[[server]]\nname = \"c\"\naddress = \"10.0.0.3\"\n"
    "[[server.socket]]\nname = \"c0\"\nrole = \"colocated\"\ncores = \"cores:0\"\nport = 9000\n";

std::string Lines(const std::string& socket, pipeline::Role role, const std::string& from = "",
                  const std::string& to = "") {
  std::string text = kRing;
  if (!from.empty()) text.replace(text.find(from), from.size(), to);
  return NetworkLines(NetworkOf(pipeline::Manifest::Parse(text, "m.toml"), socket, role));
}

TEST(UnitNetwork, AStageHearsItsNeighboursOnly) {
  const std::string first = Lines("a0", pipeline::Role::kWeight);
  EXPECT_TRUE(Has(first, "IPAddressDeny=any")) << first;
  EXPECT_TRUE(Has(first, "IPAddressAllow=localhost 10.0.0.1 fd00::2")) << first;
  EXPECT_TRUE(Has(first, "SocketBindDeny=any")) << first;
  EXPECT_TRUE(Has(first, "SocketBindAllow=tcp:7171")) << first;
  EXPECT_TRUE(Has(Lines("b0", pipeline::Role::kColocated),
                  "IPAddressAllow=localhost 10.0.0.1 10.0.0.3 fd00::2"));
  EXPECT_TRUE(Has(Lines("b0", pipeline::Role::kColocated), "SocketBindAllow=tcp:7000"));
  const std::string last = Lines("c0", pipeline::Role::kColocated);
  EXPECT_TRUE(Has(last, "IPAddressAllow=localhost 10.0.0.1 10.0.0.3 fd00::2")) << last;
  EXPECT_TRUE(Has(last, "SocketBindAllow=tcp:9000")) << last;
}

// Without a serving socket, the joining process runs on the first stage's server.
TEST(UnitNetwork, TheLastStageHearsWhoeverJoins) {
  const std::string last =
      Lines("c0", pipeline::Role::kColocated, "role = \"serving\"", "role = \"attention\"");
  EXPECT_TRUE(Has(last, "IPAddressAllow=localhost 10.0.0.1 10.0.0.3 fd00::2")) << last;
}

TEST(UnitNetwork, AnAttentionSocketHasNone) {
  const std::string text = Lines("a0-kv", pipeline::Role::kAttention);
  EXPECT_TRUE(Has(text, "IPAddressAllow=localhost")) << text;
  EXPECT_TRUE(Has(text, "SocketBindDeny=any")) << text;
  EXPECT_EQ(text.find("SocketBindAllow"), text.npos) << text;
  EXPECT_EQ(text.find("TimeoutStopSec"), text.npos) << text;
}

constexpr const char* kAttentionElsewhere =
    "[[server]]\nname = \"w\"\naddress = \"10.0.0.1:7000\"\n"
    "[[server.socket]]\nname = \"weights\"\nrole = \"weight\"\ncores = \"cores:0\"\n"
    "[[server.socket]]\nname = \"near\"\nrole = \"attention\"\ncores = \"cores:1\"\n"
    "[[server.socket]]\nname = \"front\"\nrole = \"serving\"\ncores = \"cores:2\"\n"
    "[[server]]\nname = \"k\"\naddress = \"10.0.0.2\"\n"
    "[[server.socket]]\nname = \"far\"\nrole = \"attention\"\ncores = \"cores:0\"\n"
    "for = \"weights\"\n"
    "[[server]]\nname = \"b\"\naddress = \"10.0.0.3\"\n"
    "[[server.socket]]\nname = \"b0\"\nrole = \"weight\"\ncores = \"cores:0\"\n"
    "[[server.socket]]\nname = \"b1\"\nrole = \"attention\"\ncores = \"cores:1\"\n"
    "[[server.socket]]\nname = \"b2\"\nrole = \"attention\"\ncores = \"cores:2\"\n";

TEST(UnitNetwork, AttentionOfAnotherServerHearsItsWeightSocketAndTheReverse) {
  const auto lines = [](const char* socket, pipeline::Role role) {
    return NetworkLines(
        NetworkOf(pipeline::Manifest::Parse(kAttentionElsewhere, "m.toml"), socket, role));
  };
  const std::string far = lines("far", pipeline::Role::kAttention);
  EXPECT_TRUE(Has(far, "IPAddressAllow=localhost 10.0.0.1 10.0.0.2")) << far;
  EXPECT_TRUE(Has(far, "SocketBindAllow=tcp:7171")) << far;
  const std::string weights = lines("weights", pipeline::Role::kWeight);
  EXPECT_TRUE(Has(weights, "IPAddressAllow=localhost 10.0.0.1 10.0.0.2 10.0.0.3")) << weights;
  EXPECT_TRUE(Has(weights, "SocketBindAllow=tcp:7000")) << weights;
  EXPECT_TRUE(Has(weights, "SocketBindAllow=tcp:7128"))
      << "for the second of its attention sockets";
  EXPECT_FALSE(Has(weights, "SocketBindAllow=tcp:7064")) << "the first one has shared memory";
  const std::string near = lines("near", pipeline::Role::kAttention);
  EXPECT_TRUE(Has(near, "IPAddressAllow=localhost")) << near;
  EXPECT_EQ(near.find("SocketBindAllow"), near.npos) << near;
  EXPECT_TRUE(
      Has(lines("b0", pipeline::Role::kWeight), "IPAddressAllow=localhost 10.0.0.1 10.0.0.3"))
      << "not that of another stage's attention";
}

TEST(UnitNetwork, AServingSocketHearsClients) {
  const std::string role = "role = \"serving\"";
  const std::string local = Lines("front", pipeline::Role::kServing);  // on 127.0.0.1
  EXPECT_TRUE(Has(local, "IPAddressAllow=localhost 10.0.0.1 10.0.0.3")) << local;
  for (const char* port : {"7070", "7173", "8080"})
    EXPECT_TRUE(Has(local, std::string("SocketBindAllow=tcp:") + port)) << local;
  EXPECT_TRUE(Has(local, "TimeoutStopSec=60")) << local;
  const std::string open =
      Lines("front", pipeline::Role::kServing, role,
            role +
                "\noptions = \"--host 0.0.0.0 --port 80 --text-port=-1 --queue 5 --drain-timeout "
                "99.5 --no-cache-prompt\"");
  EXPECT_EQ(open.find("\nIPAddress"), open.npos) << open;
  EXPECT_NE(open.find("# No IPAddressDeny=: clients reach it on 0.0.0.0"), open.npos) << open;
  EXPECT_TRUE(Has(open, "SocketBindAllow=tcp:80")) << open;
  EXPECT_EQ(open.find("7070"), open.npos) << open;
  EXPECT_TRUE(Has(open, "TimeoutStopSec=130")) << open;
  const std::string any =
      Lines("front", pipeline::Role::kServing, role, role + "\noptions = \"--port 0\"");
  EXPECT_EQ(any.find("\nSocketBind"), any.npos) << any;
  EXPECT_THROW(Lines("front", pipeline::Role::kServing, role, role + "\noptions = \"--port x\""),
               Error);
}

TEST(UnitNetwork, NamesCannotBeFiltered) {
  const std::string text = Lines("b0", pipeline::Role::kColocated, "10.0.0.3", "node-c.rack");
  EXPECT_EQ(text.find("\nIPAddress"), text.npos) << text;
  EXPECT_NE(text.find("names (node-c.rack)"), text.npos) << text;
  EXPECT_TRUE(Has(text, "SocketBindAllow=tcp:7000")) << text;
  EXPECT_TRUE(
      Has(Lines("a0", pipeline::Role::kWeight, "10.0.0.3", "node-c.rack"), "IPAddressDeny=any"))
      << "no neighbour of the first";
}

}  // namespace
}  // namespace larder::node::service

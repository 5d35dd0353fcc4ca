#include "pipeline/manifest/hosts.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error_testing.h"
#include "pipeline/manifest/manifest.h"

namespace larder::pipeline::inline manifest {
namespace {

using Hosts = std::vector<std::string>;

TEST(Hosts, ListsOfUsersAndOfSlurm) {
  const auto of = [](const char* list) { return ParseHosts(list, "--hosts"); };
  EXPECT_EQ(of("a,b.example,c-1"), (Hosts{"a", "b.example", "c-1"}));
  EXPECT_EQ(of(" a b\nc\n"), (Hosts{"a", "b", "c"}));
  EXPECT_EQ(of("node[01-03,7],login"), (Hosts{"node01", "node02", "node03", "node7", "login"}));
  EXPECT_EQ(of("node[098-101]x"), (Hosts{"node098x", "node099x", "node100x", "node101x"}));
  EXPECT_EQ(of("r[1-2]n[1-2]"), (Hosts{"r1n1", "r1n2", "r2n1", "r2n2"}));
}

TEST(Hosts, BadListsAreRefusedInOneLine) {
  const auto error = [](const char* list) {
    return ErrorOf([&] { ParseHosts(list, "SLURM_JOB_NODELIST"); });
  };
  EXPECT_EQ(error(" , "), "SLURM_JOB_NODELIST: names no host");
  EXPECT_EQ(error("a,b,a"), "SLURM_JOB_NODELIST: names host a twice");
  EXPECT_EQ(error("n[1-"),
            "SLURM_JOB_NODELIST: 'n[1-': a bracket is not closed; expected hosts such as a,b or "
            "node[01-04,7]");
  for (const char* list : {"n[]", "n[a]", "n[3-1]", "n[1-]", "n[1,]", "n[1-99999]"})
    EXPECT_NE(error(list).find("not numbers or ascending ranges"), std::string::npos) << list;
  EXPECT_NE(error("a/b").find("'a/b': not a host's name"), std::string::npos);
  EXPECT_NE(error("n\x1b[1-2]").find("not a host's name"), std::string::npos);
  EXPECT_EQ(error("n[0-1023]m[1-2]"), "SLURM_JOB_NODELIST: more than 1024 hosts");
}

TEST(Hosts, PodsOfALeaderWorkerSet) {
  std::map<std::string, std::string> set = {{"LWS_LEADER_ADDRESS", "larder-0.larder.default"},
                                            {"LWS_GROUP_SIZE", "3"}};
  const auto hosts = [&] {
    return LeaderWorkerHosts([&](const char* name) -> const char* {
      return set.contains(name) ? set[name].c_str() : nullptr;
    });
  };
  EXPECT_EQ(hosts(), (Hosts{"larder-0.larder.default", "larder-0-1.larder.default",
                            "larder-0-2.larder.default"}));
  set["LWS_GROUP_SIZE"] = "0";
  EXPECT_EQ(ErrorOf(hosts), "LWS_GROUP_SIZE: '0'; expected a number from 1 to 1024");
  set["LWS_LEADER_ADDRESS"] = "larder-0";
  EXPECT_EQ(ErrorOf(hosts), "LWS_LEADER_ADDRESS: 'larder-0'; expected NAME-0.SERVICE.NAMESPACE");
  set.erase("LWS_LEADER_ADDRESS");
  EXPECT_NE(ErrorOf(hosts).find("LWS_LEADER_ADDRESS is not set"), std::string::npos);
}

constexpr const char* kTemplate =
    "name = \"story\"  # of {host} nothing here\n"
    "[model]\nslots = 4\n"
    "[[server]]\n"
    "name = \"{host}\"\n"
    "address = \"{host}\"\n"
    "[[server.socket]]\n"
    "name = \"stage-{rank}\"\n"
    "role = \"colocated\"\n"
    "cores = \"package:0\"\n";

TEST(ExpandedManifest, HasAServerForEachHost) {
  const std::string text = ExpandManifest(kTemplate, "t.toml", {"n01", "n02", "n03"});
  const Manifest manifest = Manifest::Parse(text, "m.toml");
  ASSERT_EQ(manifest.servers.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(manifest.servers[i].name, "n0" + std::to_string(i + 1));
    EXPECT_EQ(manifest.servers[i].address, manifest.servers[i].name);
    EXPECT_EQ(manifest.servers[i].sockets[0].name, "stage-" + std::to_string(i));
  }
  EXPECT_TRUE(text.starts_with("name = \"story\"  # of {host} nothing here\n"));
}

TEST(ExpandedManifest, OtherServersStayAsTheyAre) {
  const std::string front =
      "[[server]]\nname = \"front\"\naddress = \"front\"\n"
      "[[server.socket]]\nname = \"front\"\nrole = \"serving\"\ncores = \"all\"\n";
  const Manifest manifest =
      Manifest::Parse(ExpandManifest(kTemplate + front, "t.toml", {"a", "b"}), "m.toml");
  ASSERT_EQ(manifest.servers.size(), 3u);
  EXPECT_EQ(manifest.servers[2].name, "front");
  EXPECT_EQ(ErrorOf([&] { ExpandManifest(front, "t.toml", {"a"}); }),
            "t.toml: no [[server]] has {host} in its name or address; expected one, for each host");
  EXPECT_NE(ErrorOf([&] {
              ExpandManifest(kTemplate + std::string("rows = 1\n"), "t.toml", {"a"});
            }).find("(lines are those of what it expands to)"),
            std::string::npos);
}

}  // namespace
}  // namespace larder::pipeline::manifest

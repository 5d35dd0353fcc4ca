// Endpoints of a chain's links, as derived from a Plan.
#include "pipeline/chain/chain_plan.h"

#include <gtest/gtest.h>

#include "pipeline/plan/plan_testing.h"

namespace larder::pipeline::inline chain {
namespace {

// Both of a socket's link ends use the device that the socket's own keys name.
TEST(ChainPlanTest, EndsOfLinksAreOfTheirSocketsDevice) {
  const std::string text =
      std::string(kThree).insert(std::string(kThree).find("[[server]]"),
                                 "[link]\ndevice = \"rxe0\"\ntransport = \"verbs\"\nmtu = 4096\n") +
      "device = \"rxe1\"\ndevice_port = 2\ngid_index = 3\nmtu = 1024\n";
  const ChainPlan chain =
      ChainOf(Manifest::Parse(text, "m.toml"), PlanOf(text, TenLayers(), "two-packages"));
  ASSERT_EQ(chain.stages.size(), 3u);
  EXPECT_EQ(chain.plan_hash, PlanOf(text, TenLayers(), "two-packages").hash()) << "one hash";
  for (const rdma::LinkEndpoint* end : {&chain.stages[2].endpoint, &chain.stages[2].next}) {
    EXPECT_EQ(end->device, "rxe1");
    EXPECT_EQ(end->device_port, 2);
    EXPECT_EQ(end->gid_index, 3);
    EXPECT_EQ(end->mtu, 1024);
  }
  for (const rdma::LinkEndpoint* end : {&chain.serving, &chain.first, &chain.stages[0].endpoint,
                                        &chain.stages[1].endpoint, &chain.stages[1].next}) {
    EXPECT_EQ(end->transport, rdma::Transport::kVerbs);
    EXPECT_EQ(end->device, "rxe0");
    EXPECT_EQ(end->device_port, 1);
    EXPECT_EQ(end->gid_index, -1);
    EXPECT_EQ(end->mtu, 4096);
  }
}

}  // namespace
}  // namespace larder::pipeline::chain

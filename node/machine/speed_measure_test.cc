#include "node/machine/speed_measure.h"

#include <gtest/gtest.h>

#include "topology/this_machine_testing.h"

namespace larder::node::inline machine {
namespace {

TEST(MeasureSpeeds, MeasuresWhatTheModelOfTimeAsksFor) {
  LARDER_NEEDS_THIS_MACHINE();
  const auto machine = topology::Topology::Detect();
  pipeline::Speeds none;
  for (double pipeline::Speeds::*const field :
       {&pipeline::Speeds::l3_core_gbps, &pipeline::Speeds::dram_socket_gbps,
        &pipeline::Speeds::dram_core_gbps, &pipeline::Speeds::core_gops,
        &pipeline::Speeds::element_ns, &pipeline::Speeds::attention_element_ns})
    none.*field = 0;
  none.link_latency_us = 7;
  const pipeline::Speeds speeds = MeasureSpeeds(machine, kernels::BestIsa(), 0.2, none);
  EXPECT_GT(speeds.l3_core_gbps, 0);
  EXPECT_GT(speeds.dram_socket_gbps, 0);
  EXPECT_GT(speeds.dram_core_gbps, 0);
  EXPECT_GT(speeds.element_ns, 0);
  for (const double gops : speeds.rows_gops) EXPECT_GT(gops, 0);
  EXPECT_EQ(speeds.core_gops, speeds.rows_gops.back());
  EXPECT_EQ(speeds.link_latency_us, 7) << "links are not measured";
  EXPECT_GT(speeds.attention_element_ns, 0);
  using pipeline::SpeedSource, pipeline::Speeds;
  EXPECT_EQ(speeds.SourceOf(&Speeds::core_gops), SpeedSource::kMeasured);
  EXPECT_EQ(speeds.SourceOf(&Speeds::attention_element_ns), SpeedSource::kMeasured);
  EXPECT_EQ(speeds.SourceOf(&Speeds::link_latency_us), SpeedSource::kAssumed);
}

}  // namespace
}  // namespace larder::node::machine

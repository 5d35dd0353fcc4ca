#include "rdma/common/helper_thread.h"

#include <gtest/gtest.h>

#include <vector>

#include "topology/affinity.h"

namespace larder::rdma::inline common {
namespace {

std::vector<CpuId> CpusOfHelper(CpuId cpu) {
  std::vector<CpuId> cpus;
  StartHelper([&] { cpus = topology::GetAffinity(pthread_self()); }, cpu).join();
  return cpus;
}

TEST(StartHelper, RunsOnItsCpuOrOnAllThatTheProcessHad) {
  const std::vector<CpuId> all = topology::GetAffinity(pthread_self());
  ASSERT_FALSE(all.empty());
  ASSERT_TRUE(topology::PinThisThread(all.front()));
  EXPECT_EQ(CpusOfHelper(all.back()), std::vector{all.back()});
  EXPECT_EQ(CpusOfHelper(CpuId()), all) << "not its creator's";
  EXPECT_EQ(CpusOfHelper(CpuId(topology::kMaxCpus - 1)), all) << "a CPU that it may not have";
  EXPECT_EQ(topology::SetAffinity(pthread_self(), all), 0);
}

}  // namespace
}  // namespace larder::rdma::common

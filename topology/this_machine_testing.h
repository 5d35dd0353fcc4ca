// Test support: tests that pin threads, or compare a description with what the kernel says, need
// the machine that they run on. They are skipped where the environment describes another one to
// hwloc (HWLOC_SYNTHETIC, HWLOC_XMLFILE). And where memory really lies. Included by tests only.
#pragma once

#include <gtest/gtest.h>
#include <numaif.h>

#include <cstdint>

#include "base/ids.h"
#include "base/memory.h"
#include "topology/topology.h"

#define LARDER_NEEDS_THIS_MACHINE()                      \
  if (::larder::topology::Topology::Detect().from_xml()) \
  GTEST_SKIP() << "the environment describes another machine"

namespace larder::topology {

// The node of the page that these bytes are in, as the kernel has it; invalid: it has no memory
// yet.
inline NumaNodeId NodeOfPage(const void* bytes) {
  const auto at = reinterpret_cast<uintptr_t>(bytes) / kPageBytes * kPageBytes;
  void* page = reinterpret_cast<void*>(at);
  int status = -1;
  EXPECT_EQ(::move_pages(0, 1, &page, nullptr, &status, 0), 0);
  return status < 0 ? NumaNodeId() : NumaNodeId(status);
}

}  // namespace larder::topology

// Test support: tests that pin threads, or compare a description with what the kernel says, need
// the machine that they run on. They are skipped where the environment describes another one to
// hwloc (HWLOC_SYNTHETIC, HWLOC_XMLFILE). Included by tests only.
#pragma once

#include <gtest/gtest.h>

#include "topology/topology.h"

#define LARDER_NEEDS_THIS_MACHINE()                      \
  if (::larder::topology::Topology::Detect().from_xml()) \
  GTEST_SKIP() << "the environment describes another machine"

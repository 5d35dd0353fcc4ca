// Test support: tests that pin threads, or compare what is described with what the kernel says, are
// of the machine that runs them. Where the environment describes another one to hwloc
// (HWLOC_SYNTHETIC, HWLOC_XMLFILE) they are skipped. Included by tests only.
#pragma once

#include <gtest/gtest.h>

#include "topology/topology.h"

#define LARDER_NEEDS_THIS_MACHINE()                      \
  if (::larder::topology::Topology::Detect().from_xml()) \
  GTEST_SKIP() << "the environment describes another machine"

// Test support: machines to check manifests against, made with hwloc's synthetic topologies, and
// model shapes. Included by tests only.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/error_testing.h"
#include "model/config/config.h"
#include "model/synth/synth.h"
#include "topology/topology.h"

namespace larder::pipeline::inline manifest {

// "two-packages": 2 packages and NUMA nodes, 4 L3 groups of 32 MB, 8 cores of 2 CPUs (2i and 2i +
// 1). "two-cores": one L3 of 32 MB, 2 cores. "no-l3": 4 cores, no L3 described.
inline topology::Topology TestMachine(const std::string& name) {
  return topology::Topology::FromXml(std::string(LARDER_SOURCE_DIR "/pipeline/manifest/testdata/") +
                                     name + ".xml");
}

}  // namespace larder::pipeline::manifest

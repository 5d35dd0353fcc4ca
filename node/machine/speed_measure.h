// What this machine does at the operations of which the model of time is made
// (pipeline/prediction/prediction.h): inputs of `larder plan --measure`.
#pragma once

#include "kernels/formats/isa.h"
#include "pipeline/prediction/prediction.h"
#include "topology/topology.h"

namespace larder::node::inline machine {

// All cores at once, on buffers of its own, in about `seconds`: products of Q8_0 with one row, of
// weights in L3, and with many rows, of weights in L2; reads of memory; norm and quantisation of a
// row; attention of one row; barriers; lines from one core to another, and of several packages from
// one to the next. What could not be measured is that of `otherwise`, and so are links and what
// surrounds a step.
pipeline::Speeds MeasureSpeeds(const topology::Topology& machine, kernels::Isa isa, double seconds,
                               const pipeline::Speeds& otherwise);

}  // namespace larder::node::machine

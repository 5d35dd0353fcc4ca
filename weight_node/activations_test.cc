// The cost model of norms: who normalises how many rows.
#include "weight_node/activations.h"

#include <gtest/gtest.h>

namespace larder::weight_node {
namespace {

model::ModelConfig Config(size_t dim) {
  model::ModelConfig config;
  config.dim = dim;
  config.layers = 1;
  config.kinds.resize(1);
  config.kind_of = {0};
  config.kinds[0].sizes.heads = config.kinds[0].sizes.kv_heads = dim / 64;
  config.kinds[0].sizes.head_size = 64;
  return config;
}

TEST(OwnNormRows, OneThreadHasNobodyToShareWith) { EXPECT_EQ(OwnNormRows(Config(4096), 1), 32u); }

// A single row is never shared: the others would only wait for it.
TEST(OwnNormRows, ManyThreadsShareFewRows) {
  for (const size_t dim : {64, 1024, 8192}) {
    for (const size_t threads : {2, 8, 96, 256}) {
      const size_t rows = OwnNormRows(Config(dim), threads);
      EXPECT_GE(rows, 1u);
      EXPECT_LE(rows, 32u);
    }
  }
  EXPECT_LE(OwnNormRows(Config(8192), 96), 2u);
}

// The cheaper a row, the more of them are worth a barrier.
TEST(OwnNormRows, NarrowModelsShareLater) {
  for (const size_t threads : {2, 8, 96}) {
    for (size_t dim = 64; dim < 8192; dim *= 2)
      EXPECT_GE(OwnNormRows(Config(dim), threads), OwnNormRows(Config(2 * dim), threads)) << dim;
  }
  EXPECT_GT(OwnNormRows(Config(64), 96), OwnNormRows(Config(1024), 96));
}

}  // namespace
}  // namespace larder::weight_node

#include "kernels/tune/random_product.h"

#include <cstring>
#include <random>
#include <vector>

#include "kernels/formats/isa.h"
#include "kernels/rows/elementwise.h"
#include "model/gguf/formats.h"

namespace larder::kernels::inline tune {

void FillPanels(const PanelShape& shape, size_t n_panels, uint8_t* panels) {
  constexpr size_t kDistinct = 4;
  std::mt19937 random(1);
  std::uniform_int_distribution<int> weight(-127, 127);
  std::vector<model::Q8Block> rows(kPanelRows * shape.blocks);
  const model::Q8Block* row[kPanelRows];
  for (size_t r = 0; r < kPanelRows; ++r) row[r] = &rows[r * shape.blocks];
  for (size_t p = 0; p < n_panels; ++p) {
    uint8_t* panel = panels + p * shape.bytes();
    if (p >= kDistinct) {
      std::memcpy(panel, panels + p % kDistinct * shape.bytes(), shape.bytes());
      continue;
    }
    for (model::Q8Block& block : rows) {
      block.d = model::F32ToF16(0.01f);
      for (int8_t& q : block.q) q = static_cast<int8_t>(weight(random));
    }
    shape.format.pack(row, shape.blocks, panel);
  }
}

void FillRows(size_t m, size_t blocks, ActBlock* x) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> row(blocks * kBlock);
  auto* to = reinterpret_cast<uint8_t*>(x);
  for (size_t i = 0; i < m; ++i) {
    for (float& value : row) value = normal(random);
    GetElementwise(Isa::kScalar)
        .quantize(row.data(), reinterpret_cast<ActBlock*>(to + i * ActRowBytes(blocks)), row.size());
  }
}

}  // namespace larder::kernels::tune

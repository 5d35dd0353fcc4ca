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
  std::minstd_rand random(1);
  std::vector<uint8_t> rows(kPanelRows * shape.row_bytes());
  const void* row[kPanelRows];
  for (size_t r = 0; r < kPanelRows; ++r) row[r] = &rows[r * shape.row_bytes()];
  for (size_t p = 0; p < n_panels; ++p) {
    uint8_t* panel = panels + p * shape.bytes();
    if (p >= kDistinct) {
      std::memcpy(panel, panels + p % kDistinct * shape.bytes(), shape.bytes());
      continue;
    }
    for (size_t r = 0; r < kPanelRows; ++r)
      FillRandomRow(shape, random, &rows[r * shape.row_bytes()]);
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
        .quantize(row.data(), reinterpret_cast<ActBlock*>(to + i * ActRowBytes(blocks)),
                  row.size());
  }
}

}  // namespace larder::kernels::tune

// Packing: rows of Q8_0 blocks -> panels (kernels/formats/formats.h). Set-up code, run by the thread that
// will read the panel, so that its first touch places the page.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/formats/formats.h"
#include "model/gguf/formats.h"

namespace larder::kernels {

// rows[r] points to `blocks` blocks of row r, or is null for a row of zeros. Writes PanelBytes(blocks) at
// `panel` (64-byte aligned).
void PackPanel(const model::Q8Block* const rows[kPanelRows], size_t blocks, uint8_t* panel);

// The inverse for one row: 32 * blocks floats, exactly F16ToF32(d) * q. Used for embedding rows of a packed
// (tied) table and by tests.
void UnpackRow(const uint8_t* panel, size_t row, size_t blocks, float* out);

// Writes one position's key into a key page: q[32 * blocks] quantised as Q8_0 blocks, row = position % 16.
void PackKey(const model::Q8Block* key, size_t blocks, size_t position_in_page, uint8_t* page);
// The same for a value page.
void PackValue(const model::Q8Block* value, size_t blocks, size_t position_in_page, uint8_t* page);

}  // namespace larder::kernels

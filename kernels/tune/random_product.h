// Random operands of matrix products, for measurements. Scales are ordinary numbers, since a
// product with a subnormal one would be slow; otherwise a kernel's time does not depend on the
// values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/formats/act_block.h"
#include "kernels/formats/panel_format.h"

namespace larder::kernels::inline tune {

// Writes n_panels panels, one after the other; they repeat after a few.
void FillPanels(const PanelShape&, size_t n_panels, uint8_t* panels);
// Writes m quantised rows of `blocks` blocks, ActRowBytes(blocks) apart.
void FillRows(size_t m, size_t blocks, ActBlock* x);

}  // namespace larder::kernels::tune

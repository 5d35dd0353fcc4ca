#include "pipeline/plan/identity.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL  // no library to link
#include <xxhash.h>

#include <string>

#include "model/config/description.h"

namespace larder::pipeline::inline plan {

uint64_t IdentityOf(uint64_t fingerprint, const model::ModelConfig& config, uint32_t arithmetic) {
  const std::string of = fmt::format("weights {:016x}\narithmetic {}\nkv int8\n{}", fingerprint,
                                     arithmetic, model::DescriptionOf(config));
  return XXH3_64bits(of.data(), of.size());
}

}  // namespace larder::pipeline::plan

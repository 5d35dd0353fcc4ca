// What a template may use. It comes from a model file, which may be hostile. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>

namespace larder::model::inline jinja_language {

struct JinjaLimits {
  size_t source_bytes = 1 << 20;  // real templates have up to 20 KB
  uint64_t steps = 10'000'000;    // evaluated nodes and elements; about a second
  size_t depth = 1000;  // nested expressions, statements and calls; about 300 bytes of stack each
  size_t output_bytes = 64 << 20;   // the whole text
  size_t memory_bytes = 256 << 20;  // all strings, lists and so on that are made, freed ones
                                    // included
  size_t range_items = 100'000;     // as Jinja's sandbox has it
};

}  // namespace larder::model::jinja_language

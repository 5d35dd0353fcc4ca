// Reads the query of a request's target: the parameters of lists. Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace larder::serving::inline stored {

// The value of `name` in the target's query; empty: there is none.
std::string QueryOf(const std::string& target, std::string_view name);
// How many entries of a list are wanted, at most `most`. Throws Refused.
size_t LimitOf(const std::string& target, size_t usual, size_t most);
// Whether the newest comes first. Throws Refused.
bool WantsNewestFirst(const std::string& target);

}  // namespace larder::serving::stored

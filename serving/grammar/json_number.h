// Grammars of the JSON numbers within bounds, digit by digit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "serving/grammar/syntax.h"

namespace larder::serving::inline grammar {

// A bound as a decimal: digits before and after the point, without leading or trailing zeros.
struct Decimal {
  bool negative = false;
  std::string whole, fraction;  // whole is "0" rather than empty
};
struct NumberBounds {
  std::optional<Decimal> least, most;
  bool least_excluded = false, most_excluded = false;
};

// Parses what nlohmann::json writes, "-12.5e3". Throws Error if it has more digits than are
// supported.
Decimal ParseDecimal(const std::string& text);

// Whole numbers within the bounds, without exponent; on a side without a bound, of at most 16
// digits.
ExprId AddInteger(Syntax&, const NumberBounds&);
// Numbers within the bounds; without bounds with an optional exponent, with them as decimals.
ExprId AddNumber(Syntax&, const NumberBounds&);

}  // namespace larder::serving::grammar

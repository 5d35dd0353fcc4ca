#include "serving/grammar/json_number.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "base/error.h"

namespace larder::serving::inline grammar {
namespace {

constexpr size_t kMostDigits = 16;   // digits of a number without a bound: doubles have no more
constexpr size_t kMostFraction = 6;  // beside a bound: few, so that a double does not round it over
                                     // the bound
constexpr size_t kMostBoundDigits = 40;  // before the point, and after it

ExprId Digits(Syntax& syntax, char first, char last) {
  if (first > last) return syntax.Never();
  return syntax.Class({{static_cast<uint32_t>(first), static_cast<uint32_t>(last)}});
}
ExprId AnyDigits(Syntax& syntax, size_t least, size_t most) {
  return syntax.Repeat(Digits(syntax, '0', '9'), static_cast<uint32_t>(least),
                       static_cast<uint32_t>(most));
}
char Up(char digit) { return static_cast<char>(digit + 1); }
char Down(char digit) { return static_cast<char>(digit - 1); }

// Numbers of as many digits as both bounds have, from low to high.
ExprId SameLength(Syntax& syntax, const std::string& low, const std::string& high) {
  const size_t n = low.size();
  size_t same = 0;
  while (same < n && low[same] == high[same]) ++same;
  const ExprId prefix = syntax.Text(low.substr(0, same));
  if (same == n) return prefix;
  // The digit at `same` differs: in between anything follows; at the ends one bound goes on to
  // hold.
  std::vector<ExprId> ways;
  const size_t rest = n - same - 1;
  ways.push_back(syntax.Sequence(
      {Digits(syntax, Up(low[same]), Down(high[same])), AnyDigits(syntax, rest, rest)}));
  for (size_t i = same + 1; i < n; ++i) {  // equal to low up to i, then more
    ways.push_back(
        syntax.Sequence({syntax.Text(low.substr(same, i - same)), Digits(syntax, Up(low[i]), '9'),
                         AnyDigits(syntax, n - i - 1, n - i - 1)}));
    ways.push_back(syntax.Sequence({syntax.Text(high.substr(same, i - same)),
                                    Digits(syntax, '0', Down(high[i])),
                                    AnyDigits(syntax, n - i - 1, n - i - 1)}));
  }
  ways.push_back(syntax.Text(low.substr(same)));
  ways.push_back(syntax.Text(high.substr(same)));
  return syntax.Sequence({prefix, syntax.Choice(ways)});
}

bool Less(const std::string& a, const std::string& b) {
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

// Natural numbers from low to high.
ExprId Naturals(Syntax& syntax, const std::string& low, const std::string& high) {
  if (Less(high, low)) return syntax.Never();
  std::vector<ExprId> ways;
  for (size_t n = low.size(); n <= high.size(); ++n) {
    std::string first = low;
    if (n > low.size()) {
      first.assign(n, '0');
      first[0] = '1';
    }
    const std::string last = n == high.size() ? high : std::string(n, '9');
    ways.push_back(SameLength(syntax, first, last));
  }
  return syntax.Choice(ways);
}

std::string PlusOne(std::string digits) {
  for (size_t i = digits.size(); i-- > 0;) {
    if (digits[i] != '9') {
      ++digits[i];
      return digits;
    }
    digits[i] = '0';
  }
  digits.insert(digits.begin(), '1');
  return digits;
}
// For a number that is not 0.
std::string MinusOne(std::string digits) {
  for (size_t i = digits.size(); i-- > 0;) {
    if (digits[i] != '0') {
      --digits[i];
      break;
    }
    digits[i] = '9';
  }
  if (digits.size() > 1 && digits[0] == '0') digits.erase(0, 1);
  return digits;
}

// Bounds of the absolute value of numbers of one sign; an absent `most` is none.
struct Magnitudes {
  Decimal least{.whole = "0"};
  bool least_excluded = false;
  std::optional<Decimal> most;
  bool most_excluded = false;
  bool none = false;
};

Magnitudes NotNegative(const NumberBounds& bounds) {
  Magnitudes of;
  if (bounds.least && !bounds.least->negative) {
    of.least = *bounds.least;
    of.least_excluded = bounds.least_excluded;
  }
  if (bounds.most) {
    of.none = bounds.most->negative;
    of.most = bounds.most;
    of.most_excluded = bounds.most_excluded;
  }
  return of;
}

Magnitudes Negative(const NumberBounds& bounds) {
  const auto flipped = [](std::optional<Decimal> value) {
    if (value) value->negative = !value->negative;
    return value;
  };
  Magnitudes of = NotNegative(
      {flipped(bounds.most), flipped(bounds.least), bounds.most_excluded, bounds.least_excluded});
  if (of.least.whole == "0" && of.least.fraction.empty()) of.least_excluded = true;  // no -0
  return of;
}

std::string HighestWhole(const std::string& low) {
  return std::string(std::max(kMostDigits, low.size() + 1), '9');
}

ExprId Wholes(Syntax& syntax, const Magnitudes& of) {
  if (of.none) return syntax.Never();
  const bool above = of.least_excluded || !of.least.fraction.empty();
  const std::string low = above ? PlusOne(of.least.whole) : of.least.whole;
  if (!of.most) return Naturals(syntax, low, HighestWhole(low));
  std::string high = of.most->whole;
  if (of.most_excluded && of.most->fraction.empty()) {
    if (high == "0") return syntax.Never();
    high = MinusOne(high);
  }
  return Naturals(syntax, low, high);
}

// "." and digits so that 0.DIGITS is at least (or more than) 0.bound; the empty text too where 0
// is.
ExprId FractionFrom(Syntax& syntax, const std::string& bound, bool excluded) {
  const ExprId any =
      syntax.Optional(syntax.Sequence({syntax.Text("."), AnyDigits(syntax, 1, kMostFraction)}));
  if (bound.empty() && !excluded) return any;
  std::vector<ExprId> ways;
  for (size_t i = 0; i < bound.size(); ++i) {
    ways.push_back(
        syntax.Sequence({syntax.Text(bound.substr(0, i)), Digits(syntax, Up(bound[i]), '9'),
                         AnyDigits(syntax, 0, kMostFraction)}));
  }
  if (excluded) {  // equal so far, then zeros and another digit
    ways.push_back(
        syntax.Sequence({syntax.Text(bound), syntax.Repeat(syntax.Text("0"), 0, kMostFraction - 1),
                         Digits(syntax, '1', '9'), AnyDigits(syntax, 0, kMostFraction - 1)}));
  } else {
    ways.push_back(syntax.Sequence({syntax.Text(bound), AnyDigits(syntax, 0, kMostFraction)}));
  }
  return syntax.Sequence({syntax.Text("."), syntax.Choice(ways)});
}

// The same for at most (or less than).
ExprId FractionUpTo(Syntax& syntax, const std::string& bound, bool excluded) {
  const ExprId zeros = syntax.Repeat(syntax.Text("0"), 0, kMostFraction);
  std::vector<ExprId> ways;
  for (size_t i = 0; i < bound.size(); ++i) {
    ways.push_back(
        syntax.Sequence({syntax.Text(bound.substr(0, i)), Digits(syntax, '0', Down(bound[i])),
                         AnyDigits(syntax, 0, kMostFraction)}));
    if (i > 0)
      ways.push_back(syntax.Text(bound.substr(0, i)));  // it goes on with zeros, which are less
  }
  if (!excluded)
    ways.push_back(syntax.Sequence(
        {syntax.Text(bound),
         bound.empty() ? syntax.Repeat(syntax.Text("0"), 1, kMostFraction) : zeros}));
  const ExprId with_point = syntax.Sequence({syntax.Text("."), syntax.Choice(ways)});
  if (bound.empty() && excluded) return syntax.Never();
  return syntax.Optional(with_point);
}

// Fractions between two bounds of the same whole part.
ExprId FractionBetween(Syntax& syntax, const Decimal& low, bool low_excluded, const Decimal& high,
                       bool high_excluded) {
  const size_t n = std::max({low.fraction.size(), high.fraction.size(), size_t{1}});
  // With one digit more than both, the open ends are numbers themselves.
  std::string from = low.fraction + std::string(n + 1 - low.fraction.size(), '0');
  std::string to = high.fraction + std::string(n + 1 - high.fraction.size(), '0');
  if (low_excluded) from = PlusOne(from);
  if (high_excluded) {
    if (to.find_first_not_of('0') == std::string::npos) return syntax.Never();
    for (size_t i = to.size(); i-- > 0;) {
      if (to[i]-- != '0') break;
      to[i] = '9';
    }
  }
  if (from.size() > n + 1 || to < from) return syntax.Never();
  return syntax.Sequence({syntax.Text("."), SameLength(syntax, from, to)});
}

ExprId Reals(Syntax& syntax, const Magnitudes& of) {
  if (of.none) return syntax.Never();
  const ExprId any = FractionFrom(syntax, "", false);
  const Decimal& low = of.least;
  std::vector<ExprId> ways;
  if (of.most && of.most->whole == low.whole) {
    const bool has_point = !low.fraction.empty() || of.least_excluded;
    if (!has_point && of.most->fraction.empty()) {
      if (of.most_excluded) return syntax.Never();
      return syntax.Text(low.whole);
    }
    if (!has_point) ways.push_back(syntax.Text(low.whole));
    ways.push_back(
        syntax.Sequence({syntax.Text(low.whole), FractionBetween(syntax, low, of.least_excluded,
                                                                 *of.most, of.most_excluded)}));
    return syntax.Choice(ways);
  }
  if (of.most && Less(of.most->whole, low.whole)) return syntax.Never();
  ways.push_back(syntax.Sequence(
      {syntax.Text(low.whole), FractionFrom(syntax, low.fraction, of.least_excluded)}));
  const std::string above = PlusOne(low.whole);
  if (of.most) {
    ways.push_back(syntax.Sequence({Naturals(syntax, above, MinusOne(of.most->whole)), any}));
    ways.push_back(syntax.Sequence(
        {syntax.Text(of.most->whole), FractionUpTo(syntax, of.most->fraction, of.most_excluded)}));
  } else {
    ways.push_back(syntax.Sequence({Naturals(syntax, above, HighestWhole(above)), any}));
  }
  return syntax.Choice(ways);
}

ExprId Signed(Syntax& syntax, ExprId not_negative, ExprId negative) {
  return syntax.Choice({not_negative, syntax.Sequence({syntax.Text("-"), negative})});
}

ExprId PlainWhole(Syntax& syntax) {
  return syntax.Sequence(
      {syntax.Optional(syntax.Text("-")),
       syntax.Choice(
           {syntax.Text("0"),
            syntax.Sequence({Digits(syntax, '1', '9'), AnyDigits(syntax, 0, kMostDigits - 1)})})});
}

}  // namespace

Decimal ParseDecimal(const std::string& text) {
  Decimal value;
  std::string digits;
  long point = -1;
  size_t i = 0;
  if (text[0] == '-') value.negative = true, i = 1;
  for (; i < text.size() && text[i] != 'e' && text[i] != 'E'; ++i) {
    if (text[i] == '.') {
      point = static_cast<long>(digits.size());
    } else {
      digits += text[i];
    }
  }
  if (point < 0) point = static_cast<long>(digits.size());
  if (i < text.size()) point += std::strtol(text.c_str() + i + 1, nullptr, 10);
  const auto most = static_cast<long>(kMostBoundDigits);
  if (point > most || static_cast<long>(digits.size()) - point > most)
    throw Error("{} has more than {} digits before or after the point", text, most);
  if (point < 0) {
    digits.insert(digits.begin(), static_cast<size_t>(-point), '0');
    point = 0;
  }
  if (static_cast<size_t>(point) > digits.size())
    digits.append(static_cast<size_t>(point) - digits.size(), '0');
  value.whole = digits.substr(0, static_cast<size_t>(point));
  value.fraction = digits.substr(static_cast<size_t>(point));
  value.whole.erase(0, value.whole.find_first_not_of('0'));
  if (value.whole.empty()) value.whole = "0";
  while (!value.fraction.empty() && value.fraction.back() == '0') value.fraction.pop_back();
  if (value.whole == "0" && value.fraction.empty()) value.negative = false;
  return value;
}

ExprId AddInteger(Syntax& syntax, const NumberBounds& bounds) {
  if (!bounds.least && !bounds.most) return PlainWhole(syntax);
  return Signed(syntax, Wholes(syntax, NotNegative(bounds)), Wholes(syntax, Negative(bounds)));
}

ExprId AddNumber(Syntax& syntax, const NumberBounds& bounds) {
  if (bounds.least || bounds.most)
    return Signed(syntax, Reals(syntax, NotNegative(bounds)), Reals(syntax, Negative(bounds)));
  const ExprId fraction = syntax.Sequence({syntax.Text("."), AnyDigits(syntax, 1, kMostDigits)});
  // Two digits: no double overflows.
  const ExprId exponent = syntax.Sequence({syntax.Class({{'E', 'E'}, {'e', 'e'}}),
                                           syntax.Optional(syntax.Class({{'+', '+'}, {'-', '-'}})),
                                           AnyDigits(syntax, 1, 2)});
  return syntax.Sequence(
      {PlainWhole(syntax), syntax.Optional(fraction), syntax.Optional(exponent)});
}

}  // namespace larder::serving::grammar

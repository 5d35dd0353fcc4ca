#include "pipeline/manifest/cores.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "pipeline/manifest/links.h"

namespace larder::pipeline::inline manifest {
namespace {

// Beyond any machine; the limit keeps a mistyped range from allocating gigabytes.
constexpr int kMaxNumber = 65535;

struct KindName {
  const char* name;
  CoreSet::Kind kind;
};
constexpr KindName kKinds[] = {{"package", CoreSet::Kind::kPackage},
                               {"l3", CoreSet::Kind::kL3},
                               {"numa", CoreSet::Kind::kNuma},
                               {"cores", CoreSet::Kind::kCores},
                               {"cpus", CoreSet::Kind::kCpus}};

std::string_view Trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// "0-3, 8"
}  // namespace

std::optional<CoreSet> ParseCoreSet(std::string_view text, std::string* problem) {
  text = Trim(text);
  CoreSet set;
  if (text == "all") return set;
  const size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  const auto* known = std::find_if(std::begin(kKinds), std::end(kKinds),
                                   [&](const KindName& k) { return k.name == kind; });
  if (colon == text.npos || known == std::end(kKinds)) {
    *problem = "not a set of cores";
    return {};
  }
  set.kind = known->kind;
  std::set<int> numbers;
  std::string_view rest = text.substr(colon + 1);
  for (bool more = true; more;) {
    const size_t comma = rest.find(',');
    more = comma != rest.npos;
    const std::string_view term = Trim(rest.substr(0, comma));
    if (more) rest.remove_prefix(comma + 1);
    if (term.empty()) {
      *problem = "a number is missing: the set is empty or has a comma too many";
      return {};
    }
    const size_t dash = term.find('-');
    const auto first = ParseNumber(Trim(term.substr(0, dash)), kMaxNumber);
    const auto last =
        dash == term.npos ? first : ParseNumber(Trim(term.substr(dash + 1)), kMaxNumber);
    if (!first || !last) {
      *problem = fmt::format("'{}' is neither a number up to {} nor a range", term, kMaxNumber);
      return {};
    }
    if (*last < *first) {
      *problem = fmt::format("the range {} runs backwards", term);
      return {};
    }
    for (int n = *first; n <= *last; ++n) {
      if (!numbers.insert(n).second) {
        *problem = fmt::format("{} is in it twice", n);
        return {};
      }
    }
  }
  set.numbers.assign(numbers.begin(), numbers.end());
  return set;
}

}  // namespace larder::pipeline::manifest

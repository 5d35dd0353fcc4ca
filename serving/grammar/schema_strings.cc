#include "serving/grammar/schema_strings.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/work.h"
#include "serving/grammar/regex.h"

namespace larder::serving::inline grammar {
namespace {

constexpr uint32_t kMostCount = 1'000'000;
// PlainSet (nfa.h) and U+007F.
const CodeSet kUnescaped = {{0x20, 0x21}, {0x23, 0x5b}, {0x5d, kLastCodePoint}};

// Formats as regular expressions: texts that every implementation takes as valid, not all that some
// would.
std::string FormatPattern(std::string_view format) {
  const std::string date =
      "[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))";
  const std::string time =
      "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?(?:Z|[+-](?:[01][0-9]|2[0-3]):["
      "0-5][0-9])";
  const std::string label = "[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?";
  const std::string host = label + "(?:\\." + label + "){0,4}";
  const std::string octet = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
  const std::string path = "(?:/[A-Za-z0-9._~-]{0,40}){0,8}";
  const std::string query = "(?:\\?[A-Za-z0-9._~=&-]{0,80})?(?:#[A-Za-z0-9._~-]{0,40})?";
  if (format == "date") return date;
  if (format == "time") return time;
  if (format == "date-time") return date + "T" + time;
  if (format == "duration")
    return "P(?:[0-9]{1,4}W|"
           "(?:[0-9]{1,4}Y(?:[0-9]{1,4}M(?:[0-9]{1,4}D)?)?|[0-9]{1,4}M(?:[0-9]{1,4}D)?|[0-9]{1,4}D)"
           "(?:T(?:[0-9]{1,4}H(?:[0-9]{1,4}M(?:[0-9]{1,4}S)?)?|"
           "[0-9]{1,4}M(?:[0-9]{1,4}S)?|[0-9]{1,4}S))?|"
           "T(?:[0-9]{1,4}H(?:[0-9]{1,4}M(?:[0-9]{1,4}S)?)?|"
           "[0-9]{1,4}M(?:[0-9]{1,4}S)?|[0-9]{1,4}S))";
  if (format == "uuid") return "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";
  if (format == "email" || format == "idn-email")
    return "[A-Za-z0-9_+-]{1,20}(?:\\.[A-Za-z0-9_+-]{1,20}){0,2}@" + label + "(?:\\." + label +
           "){1,3}";
  if (format == "hostname" || format == "idn-hostname") return host;
  if (format == "ipv4") return octet + "(?:\\." + octet + "){3}";
  if (format == "ipv6")  // in full, or the address of nothing and of oneself
    return "(?:[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){7}|::1?)";
  if (format == "uri" || format == "iri" || format == "url")
    return "https?://" + host + "(?::[1-9][0-9]{0,3})?" + path + query;
  if (format == "uri-reference" || format == "iri-reference")
    return "(?:https?://" + host + ")?/[A-Za-z0-9._~-]{0,40}" + path + query;
  if (format == "json-pointer") return "(?:/(?:[A-Za-z0-9_.-]|~[01]){0,40}){0,8}";
  return "";
}

struct KeyTree {
  // An expression is nested at most kMostExprDepth deep, a rule's is a new one.
  static constexpr size_t kCharactersOfARule = 32;
  Syntax& syntax;
  ExprId tail;  // any more characters, and the quote

  // The names in [begin, end) are equal before byte `at`, their `level`th character; they are cut
  // by characters, as classes are. Calls itself once for each character: kMostOtherKeyBytes.
  ExprId Add(const std::vector<std::string>& names, size_t begin, size_t end, size_t at,
             size_t level) {
    if (at > kMostOtherKeyBytes) throw Error("a name of more than {} bytes", kMostOtherKeyBytes);
    const ExprId ways = syntax.Choice(Ways(names, begin, end, at, level));
    if (level == 0 || level % kCharactersOfARule != 0) return ways;
    const RuleId rule = syntax.AddRule("key");
    syntax.Define(rule, ways);
    return syntax.Rule(rule);
  }

 private:
  std::vector<ExprId> Ways(const std::vector<std::string>& names, size_t begin, size_t end,
                           size_t at, size_t level) {
    SpendWork(end - begin);
    CodeSet taken;
    std::vector<ExprId> ways;
    bool is_name = false;
    for (size_t i = begin, next = begin; i < end; i = next) {
      const std::string& name = names[i];
      if (name.size() == at) {
        is_name = true;
        ++next;
        continue;
      }
      size_t length = 1;
      uint32_t c = static_cast<uint8_t>(name[at]);
      if (c >= 0xc0) {
        const size_t following = c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
        c &= 0x3f >> following;
        for (; length <= following && at + length < name.size(); ++length)
          c = c << 6 | (name[at + length] & 0x3f);
      }
      while (next < end && name.compare(at, length, names[next], at, length) == 0) ++next;
      taken.push_back({c, c});
      if (c < 0x20 || c == '"' || c == '\\') continue;  // it would be escaped
      ways.push_back(syntax.Sequence(
          {syntax.Text(name.substr(at, length)), Add(names, i, next, at + length, level + 1)}));
    }
    ways.push_back(syntax.Sequence(
        {syntax.Class(Intersection(kUnescaped, Complement(Normalised(std::move(taken))))), tail}));
    if (!is_name) ways.push_back(syntax.Text("\""));
    return ways;
  }
};

}  // namespace

uint32_t ReadCount(const Json& schema, const char* keyword, uint32_t value,
                   const std::string& path) {
  const auto found = schema.find(keyword);
  if (found == schema.end()) return value;
  const double count = found->is_number() ? found->get<double>() : -1;
  if (!(count >= 0) || count != std::floor(count))
    FailAt(path, fmt::format("{}: expected a number of 0 or more", keyword));
  return count >= kUnbounded ? kUnbounded : static_cast<uint32_t>(count);
}

ExprId AddStringChar(Syntax& syntax) {
  const CodeSet hex = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
  // Surrogates have no meaning alone, and pairs of them can be written as characters.
  const ExprId escaped = syntax.Choice(
      {syntax.Sequence({syntax.Class({{'0', '9'}, {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}}),
                        syntax.Repeat(syntax.Class(hex), 3, 3)}),
       syntax.Sequence({syntax.Class({{'D', 'D'}, {'d', 'd'}}), syntax.Class({{'0', '7'}}),
                        syntax.Repeat(syntax.Class(hex), 2, 2)})});
  return syntax.Choice(
      {syntax.Class(kUnescaped),
       syntax.Sequence(
           {syntax.Text("\\"), syntax.Choice({syntax.Class({{'"', '"'},
                                                            {'/', '/'},
                                                            {'\\', '\\'},
                                                            {'b', 'b'},
                                                            {'f', 'f'},
                                                            {'n', 'n'},
                                                            {'r', 'r'},
                                                            {'t', 't'}}),
                                              syntax.Sequence({syntax.Text("u"), escaped})})})});
}

ExprId AddString(Syntax& syntax, const Json& schema, const std::string& path) {
  uint32_t least = ReadCount(schema, "minLength", 0, path);
  uint32_t most = ReadCount(schema, "maxLength", kUnbounded, path);
  if (least > kMostCount)
    FailAt(path, fmt::format("minLength is more than {}: not supported", kMostCount));
  if (most > kMostCount) most = kUnbounded;
  if (least > most) return syntax.Never();
  const ExprId quote = syntax.Text("\"");
  const auto pattern = schema.find("pattern");
  const auto format = schema.find("format");
  std::string text, of_format;
  if (format != schema.end() && format->is_string()) {
    SpendWork(100);
    of_format = FormatPattern(format->get_ref<const std::string&>());
  }
  const bool whole = pattern == schema.end();
  if (whole) {
    text = of_format;
  } else if (pattern->is_string()) {
    // Beside a format it is the form that its validator wants of it (zod writes both).
    text = pattern->get<std::string>();
  } else {
    FailAt(path, "pattern: expected a string");
  }
  if (text.empty()) {
    const ExprId chars = syntax.Repeat(AddStringChar(syntax), least, most);
    return syntax.Sequence({quote, chars, quote});
  }
  try {
    const ExprId chars =
        AddRegex(syntax, text,
                 {.form = TextForm::kJsonString, .whole = whole, .least = least, .most = most});
    return syntax.Sequence({quote, chars, quote});
  } catch (const Error& error) {
    // Addresses of the format fit zod's pattern of them, whose look-ahead there are no states for.
    if (!whole && format != schema.end() && *format == "email") {
      return AddString(syntax, Copied(schema, {"pattern"}), path);
    }
    FailAt(path, fmt::format("pattern: {}", error.what()));
  }
}

ExprId AddOtherKey(Syntax& syntax, std::vector<std::string> names) {
  SpendWork(16 * names.size());
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  const RuleId tail = syntax.AddRule("key-end");
  syntax.Define(tail, syntax.Sequence({syntax.Repeat(AddStringChar(syntax), 0, kUnbounded),
                                       syntax.Text("\"")}));
  if (names.empty()) return syntax.Sequence({syntax.Text("\""), syntax.Rule(tail)});
  KeyTree tree{syntax, syntax.Rule(tail)};
  return syntax.Sequence({syntax.Text("\""), tree.Add(names, 0, names.size(), 0, 0)});
}

}  // namespace larder::serving::grammar

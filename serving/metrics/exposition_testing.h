// Test support: a strict parser of Prometheus' text exposition format 0.0.4. It throws where a
// scraper may be lenient.
#pragma once

#include <cctype>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace larder::serving::inline metrics {

struct Exposition {
  std::map<std::string, std::string> types, helps;  // by family
  std::map<std::string, double> samples;  // by name{label="value",...}, labels in order of name

  double Value(const std::string& series) const {
    const auto found = samples.find(series);
    if (found == samples.end()) throw std::runtime_error("no sample " + series);
    return found->second;
  }

  // (upper bound, cumulative count) of a histogram without other labels, by bound.
  std::vector<std::pair<double, double>> Buckets(const std::string& family) const {
    std::map<double, double> buckets;
    const std::string head = family + "_bucket{le=\"";
    for (const auto& [series, value] : samples) {
      if (series.starts_with(head)) buckets[std::stod(series.substr(head.size()))] = value;
    }
    return {buckets.begin(), buckets.end()};
  }
};

class ExpositionParser {
 public:
  Exposition Parse(std::string_view text) {
    while (!text.empty()) {
      const size_t end = text.find('\n');
      if (end == std::string_view::npos) Fail("the last line has no end", text);
      line_ = text.substr(0, end);
      text.remove_prefix(end + 1);
      line_.starts_with("# ") ? Comment() : Sample();
    }
    return std::move(result_);
  }

 private:
  [[noreturn]] static void Fail(const char* what, std::string_view line) {
    throw std::runtime_error(std::string(what) + ": " + std::string(line));
  }

  std::string Name() {
    size_t n = 0;
    while (n < line_.size() && (std::isalnum(static_cast<unsigned char>(line_[n])) ||
                                line_[n] == '_' || line_[n] == ':'))
      ++n;
    if (n == 0 || std::isdigit(static_cast<unsigned char>(line_[0]))) Fail("not a name", line_);
    const std::string name(line_.substr(0, n));
    line_.remove_prefix(n);
    return name;
  }

  void Expect(char c) {
    if (line_.empty() || line_[0] != c) Fail("unexpected", line_);
    line_.remove_prefix(1);
  }

  void Comment() {
    line_.remove_prefix(2);
    const std::string kind = Name();
    Expect(' ');
    const std::string family = Name();
    Expect(' ');
    if (kind != "HELP" && kind != "TYPE") Fail("neither HELP nor TYPE", kind);
    if (kind == "TYPE" && line_ != "counter" && line_ != "gauge" && line_ != "histogram")
      Fail("not a type", line_);
    if (kind == "TYPE" && !result_.helps.contains(family)) Fail("TYPE without HELP", family);
    if (!(kind == "HELP" ? result_.helps : result_.types).emplace(family, line_).second)
      Fail("twice", family);
    family_ = family;
  }

  std::string LabelValue() {
    std::string value;
    Expect('"');
    for (; !line_.empty() && line_[0] != '"'; line_.remove_prefix(1)) {
      value += line_[0];
      if (line_[0] != '\\') continue;
      line_.remove_prefix(1);
      if (line_.empty() || std::string_view("\\\"n").find(line_[0]) == std::string_view::npos) {
        Fail("not an escape", line_);
      }
      value += line_[0];
    }
    Expect('"');
    return value;
  }

  void Sample() {
    const std::string name = Name();
    const auto type = result_.types.find(family_);
    if (type == result_.types.end()) Fail("a sample without TYPE", name);
    const std::string suffix = name.starts_with(family_) ? name.substr(family_.size()) : "?";
    const bool histogram = type->second == "histogram";
    if (histogram ? suffix != "_bucket" && suffix != "_sum" && suffix != "_count"
                  : !suffix.empty()) {
      Fail("a sample of another family", name);
    }
    std::map<std::string, std::string> labels;
    if (line_.starts_with('{')) {
      for (char open = '{'; !line_.starts_with('}'); open = ',') {
        Expect(open);
        const std::string label = Name();
        Expect('=');
        if (!labels.emplace(label, LabelValue()).second) Fail("a label twice", label);
      }
      Expect('}');
    }
    if ((suffix == "_bucket") != labels.contains("le")) Fail("le belongs to buckets", name);
    Expect(' ');
    const double value = Number(line_);
    if (type->second != "gauge" && !(value >= 0)) Fail("only gauges may be negative or NaN", name);
    std::string series = name;
    for (char open = '{'; const auto& [label, text] : labels) {
      series += open + label + "=\"" + text + '"';
      open = ',';
    }
    if (!labels.empty()) series += '}';
    if (!result_.samples.emplace(series, value).second) Fail("a sample twice", series);
  }

  static double Number(std::string_view text) {
    if (text == "+Inf") return std::numeric_limits<double>::infinity();
    if (text == "NaN") return std::nan("");
    if (text.empty() || text.find_first_not_of("0123456789+-.e") != std::string_view::npos)
      Fail("not a number", text);
    size_t used = 0;
    const double value = std::stod(std::string(text), &used);
    if (used != text.size()) Fail("not a number", text);
    return value;
  }

  Exposition result_;
  std::string_view line_;
  std::string family_;
};

inline Exposition ParseExposition(std::string_view text) { return ExpositionParser().Parse(text); }

}  // namespace larder::serving::metrics

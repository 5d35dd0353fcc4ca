#include "serving/http/multipart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace larder::serving::inline http {
namespace {

bool SameWord(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) ==
           std::tolower(static_cast<unsigned char>(y));
  });
}

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// The value of `name` among the parameters of a header's value, "form-data; name=\"x\"; ...".
// Empty: there is none. A backslash takes the next character as it is, as browsers and Python write
// it.
std::string Parameter(std::string_view value, std::string_view name) {
  size_t at = std::min(value.find(';'), value.size());
  while (at < value.size()) {
    ++at;  // the ';'
    const size_t equals = value.find('=', at);
    if (equals == std::string_view::npos) return "";
    const bool wanted = SameWord(Trimmed(value.substr(at, equals - at)), name);
    std::string found;
    at = equals + 1;
    if (at < value.size() && value[at] == '"') {
      for (++at; at < value.size() && value[at] != '"'; ++at) {
        if (value[at] == '\\' && at + 1 < value.size()) ++at;
        found += value[at];
      }
      at = std::min(value.find(';', at), value.size());
    } else {
      const size_t end = std::min(value.find(';', at), value.size());
      found = Trimmed(value.substr(at, end - at));
      at = end;
    }
    if (wanted) return found;
  }
  return "";
}

}  // namespace

std::string BoundaryOf(std::string_view content_type) {
  const std::string_view kind = Trimmed(content_type.substr(0, content_type.find(';')));
  if (!SameWord(kind, "multipart/form-data")) return "";
  const std::string boundary = Parameter(content_type, "boundary");
  constexpr std::string_view kAllowed =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ'()+_,-./:=? ";
  const bool good = !boundary.empty() && boundary.size() <= 70 && boundary.back() != ' ' &&
                    boundary.find_first_not_of(kAllowed) == std::string::npos;
  return good ? boundary : "";
}

MultipartParser::MultipartParser(const std::string& boundary, Sink& sink)
    : delimiter_("\r\n--" + boundary), sink_(sink), held_("\r\n") {}

bool MultipartParser::Fail(std::string why) {
  state_ = State::kFailed;
  error_ = std::move(why);
  held_ = {};
  return false;
}

bool MultipartParser::Feed(std::string_view bytes) {
  if (state_ == State::kFailed) return false;
  if (state_ == State::kEnd) return true;  // RFC 2046's epilogue, which is ignored
  held_ += bytes;
  while (Step()) {
  }
  return state_ != State::kFailed;
}

// Takes what it can from held_. Returns false when it needs more, or there is an end.
bool MultipartParser::Step() {
  switch (state_) {
    case State::kBegin: {
      const size_t have = std::min(held_.size(), delimiter_.size());
      if (held_.compare(0, have, delimiter_, 0, have) != 0)
        return Fail(fmt::format("expected it to begin with the boundary --{}",
                                std::string_view(delimiter_).substr(4)));
      if (have < delimiter_.size()) return false;
      held_.erase(0, have);
      state_ = State::kAfterBoundary;
      return true;
    }
    case State::kAfterBoundary:
      if (held_.size() < 2) return false;
      if (held_.starts_with("--")) {
        state_ = State::kEnd;
        held_ = {};
        return false;
      }
      if (!held_.starts_with("\r\n")) return Fail("expected a line end after a boundary");
      if (++parts_ > kMostParts) return Fail(fmt::format("more than {} parts", kMostParts));
      state_ = State::kHeader;  // begins with the line end, so that an empty one ends at once
      return true;
    case State::kHeader: {
      const size_t end = held_.find("\r\n\r\n");
      if (end == std::string::npos ? held_.size() > kMostHeaderBytes : end > kMostHeaderBytes)
        return Fail(fmt::format("a part's header is larger than {} bytes", kMostHeaderBytes));
      if (end == std::string::npos) return false;
      if (!ReadHeader(std::string_view(held_).substr(0, end))) return false;
      held_.erase(0, end + 4);
      state_ = State::kData;
      return true;
    }
    case State::kData: {
      const size_t end = held_.find(delimiter_);
      if (end != std::string::npos) {
        if (end > 0) sink_.OnData(std::string_view(held_).substr(0, end));
        held_.erase(0, end + delimiter_.size());
        state_ = State::kAfterBoundary;
        return true;
      }
      // All but what may be the beginning of a boundary.
      const size_t keep = std::min(held_.size(), delimiter_.size() - 1);
      const size_t sure = held_.size() - keep;
      if (sure > 0) sink_.OnData(std::string_view(held_).substr(0, sure));
      held_.erase(0, sure);
      return false;
    }
    case State::kEnd:
    case State::kFailed:
      break;
  }
  return false;
}

bool MultipartParser::ReadHeader(std::string_view header) {
  std::string name, filename;
  while (!header.empty()) {
    header.remove_prefix(2);  // each line begins with the end of the one before
    const size_t end = std::min(header.find("\r\n"), header.size());
    const std::string_view line = header.substr(0, end);
    header.remove_prefix(end);
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return Fail("a line of a part's header has no ':'");
    if (!SameWord(Trimmed(line.substr(0, colon)), "content-disposition")) continue;
    const std::string_view value = line.substr(colon + 1);
    name = Parameter(value, "name");
    filename = Parameter(value, "filename");
  }
  if (name.empty())
    return Fail("a part has no name: expected Content-Disposition: form-data; name");
  sink_.OnPart(std::move(name), std::move(filename));
  return true;
}

}  // namespace larder::serving::http

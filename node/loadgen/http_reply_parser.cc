#include "node/loadgen/http_reply_parser.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/error.h"

namespace larder::node::inline loadgen {
namespace {

constexpr size_t kMaxHeaderBytes = 64 << 10;

bool SameName(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

// Parses the number at the start of `text`. Throws Error if there is none, or if it exceeds 2^62.
size_t Number(std::string_view text, int base, const char* what) {
  size_t value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (failed != std::errc() || value > size_t{1} << 62) {
    throw Error("the server's {} is not a number: '{}'", what, text.substr(0, 40));
  }
  return value;
}

}  // namespace

void HttpReplyParser::Feed(std::string_view bytes, std::string& body) {
  begun_ = begun_ || !bytes.empty();
  while (!bytes.empty()) {
    if (state_ == State::kDone) throw Error("the server sent more than its reply");
    if (state_ == State::kToClose) {
      body += bytes;
      return;
    }
    if (state_ == State::kLength || state_ == State::kChunk) {
      const size_t n = std::min(left_, bytes.size());
      body += bytes.substr(0, n);
      bytes.remove_prefix(n);
      left_ -= n;
      if (left_ == 0) state_ = state_ == State::kLength ? State::kDone : State::kChunkEnd;
      continue;
    }
    const size_t end = bytes.find('\n');
    line_ += bytes.substr(0, end);
    if (line_.size() + header_bytes_ > kMaxHeaderBytes) {
      throw Error("the server's headers are longer than {} bytes", kMaxHeaderBytes);
    }
    if (end == std::string_view::npos) return;
    bytes.remove_prefix(end + 1);
    if (line_.ends_with('\r')) line_.pop_back();
    const std::string line = std::move(line_);
    line_.clear();
    Line(line);
  }
}

void HttpReplyParser::Line(std::string_view line) {
  switch (state_) {
    case State::kStatus:
      if (line.size() < 12 || !line.starts_with("HTTP/1.") || line[8] != ' ') {
        throw Error("not an HTTP server: it sent '{}'", line.substr(0, 60));
      }
      keep_alive_ = line[7] != '0';
      status_ = static_cast<int>(Number(line.substr(9, 3), 10, "status"));
      state_ = State::kHeaders;
      return;
    case State::kHeaders:
      header_bytes_ += line.size();
      line.empty() ? EndOfHeaders() : Header(line);
      return;
    case State::kChunkSize:
      left_ = Number(line, 16, "chunk size");
      state_ = left_ == 0 ? State::kTrailers : State::kChunk;
      return;
    case State::kChunkEnd:
      if (!line.empty()) throw Error("the server's chunk is longer than announced");
      state_ = State::kChunkSize;
      return;
    case State::kTrailers:
      header_bytes_ += line.size();
      if (line.empty()) state_ = State::kDone;
      return;
    default:
      return;
  }
}

void HttpReplyParser::Header(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos)
    throw Error("the server's header has no name: '{}'", line.substr(0, 60));
  const std::string_view name = line.substr(0, colon);
  std::string_view value = line.substr(colon + 1);
  value.remove_prefix(std::min(value.find_first_not_of(" \t"), value.size()));
  while (value.ends_with(' ') || value.ends_with('\t')) value.remove_suffix(1);
  if (SameName(name, "content-length")) {
    left_ = Number(value, 10, "content length");
    has_length_ = true;
  } else if (SameName(name, "transfer-encoding")) {
    if (!SameName(value, "chunked"))
      throw Error("the server's transfer encoding '{}' is not known", value);
    chunked_ = true;
  } else if (SameName(name, "connection")) {
    if (SameName(value, "close")) keep_alive_ = false;
    if (SameName(value, "keep-alive")) keep_alive_ = true;
  } else if (SameName(name, "retry-after") && !value.empty() && value[0] >= '0' &&
             value[0] <= '9') {
    retry_after_s_ = static_cast<int>(std::min<size_t>(Number(value, 10, "Retry-After"), 3600));
  }
}

void HttpReplyParser::EndOfHeaders() {
  if (status_ >= 100 && status_ < 200) {  // "100 Continue": the reply itself follows
    *this = HttpReplyParser();
    begun_ = true;
  } else if (status_ == 204 || status_ == 304) {
    state_ = State::kDone;
  } else if (chunked_) {
    state_ = State::kChunkSize;
  } else if (has_length_) {
    state_ = left_ == 0 ? State::kDone : State::kLength;
  } else {
    state_ = State::kToClose;
    keep_alive_ = false;
  }
}

void HttpReplyParser::Close() {
  if (state_ == State::kToClose) state_ = State::kDone;
  if (state_ == State::kDone) return;
  if (begun_) throw Error("the connection closed in the middle of the reply");
  throw Error("the connection closed without a reply");
}

}  // namespace larder::node::loadgen

#include "serving/http/http_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/none.hpp>
#include <boost/optional.hpp>
#include <cctype>
#include <optional>
#include <utility>

namespace larder::serving::inline http {

namespace beast = boost::beast::http;

// A body that is a string, as Beast's string_body, but without a reservation of as many bytes as a
// client says that it will send.
struct PlainBody {
  using value_type = std::string;
  static uint64_t size(const value_type& body) { return body.size(); }

  class reader {
   public:
    template <bool is_request, typename Fields>
    reader(beast::header<is_request, Fields>&, value_type& body) : body_(body) {}
    void init(const boost::optional<uint64_t>&, boost::system::error_code& ec) { ec = {}; }
    template <typename Buffers>
    size_t put(const Buffers& buffers, boost::system::error_code& ec) {
      ec = {};
      size_t all = 0;
      for (auto at = boost::asio::buffer_sequence_begin(buffers);
           at != boost::asio::buffer_sequence_end(buffers); ++at) {
        const boost::asio::const_buffer one = *at;
        body_.append(static_cast<const char*>(one.data()), one.size());
        all += one.size();
      }
      return all;
    }
    void finish(boost::system::error_code& ec) { ec = {}; }

   private:
    value_type& body_;
  };
};

namespace {

// What a chunked body ends with, at least. Beast asserts that it sees all of it once it has seen
// the zero.
constexpr std::string_view kShortestEnd = "0\r\n\r\n";

std::string PathOf(const std::string& target) { return target.substr(0, target.find('?')); }

// Whether it is a name or an address, and a port: "example.org", "[::1]:80".
bool IsAuthority(std::string_view text) {
  const auto all = [](std::string_view part, std::string_view besides) {
    return std::all_of(part.begin(), part.end(), [&](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || besides.find(c) != besides.npos;
    });
  };
  std::string_view name = text, rest;
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    if (end == text.npos || !all(text.substr(1, end - 1), ":.%-_")) return false;
    name = text.substr(1, end - 1);
    rest = text.substr(end + 1);
  } else {
    name = text.substr(0, text.find(':'));
    rest = text.substr(name.size());
    if (!all(name, ".-_~%")) return false;
  }
  if (name.empty() || (!rest.empty() && rest[0] != ':')) return false;
  return rest.size() <= 6 && rest.find_first_not_of("0123456789", 1) == rest.npos;
}

// The request without its body.
HttpRequest WithoutBody(const beast::request<PlainBody>& message) {
  const auto text = [](boost::beast::string_view view) {
    return std::string(view.data(), view.size());
  };
  HttpRequest request;
  request.method = text(message.method_string());
  request.target = text(message.target());
  request.path = PathOf(request.target);
  request.authorization = text(message[beast::field::authorization]);
  request.api_key = text(message["X-Api-Key"]);
  request.origin = text(message[beast::field::origin]);
  request.host = text(message[beast::field::host]);
  request.fetch_site = text(message["Sec-Fetch-Site"]);
  request.wants_headers = text(message[beast::field::access_control_request_headers]);
  request.content_type = text(message[beast::field::content_type]);
  // A proxy's form, RFC 9112 3.2.2: its authority is the Host.
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!boost::beast::iequals(request.target.substr(0, scheme.size()), scheme)) continue;
    const size_t slash =
        std::min(request.target.find_first_of("/?", scheme.size()), request.target.size());
    request.host = request.target.substr(scheme.size(), slash - scheme.size());
    request.target.erase(0, slash);
    if (!request.target.starts_with('/')) request.target.insert(0, 1, '/');
    request.path = PathOf(request.target);
  }
  request.keep_alive = message.keep_alive();
  request.http10 = message.version() == 10;
  return request;
}

}  // namespace

struct HttpParser::Impl {
  std::optional<beast::request_parser<PlainBody>> parser;
  // As its header was: what a chunked body has behind it (trailers) are no headers, RFC 9110 6.5.1.
  std::optional<HttpRequest> header;
  bool wants_continue = false;
};

HttpParser::HttpParser(const HttpLimits& limits)
    : limits_(limits), impl_(std::make_unique<Impl>()) {}
HttpParser::~HttpParser() = default;

size_t HttpParser::Feed(std::string_view bytes) {
  if (error_status_ != 0 || done() || bytes.empty()) return 0;
  auto& parser = impl_->parser;
  if (!parser) {
    parser.emplace();
    parser->eager(false);  // it stops behind the header
    impl_->header.reset();
    impl_->wants_continue = false;
    parser->header_limit(static_cast<uint32_t>(limits_.header_bytes));
    parser->body_limit(boost::none);  // CheckBody has the limit, which depends on the path
    continue_told_ = header_told_ = false;
    body_limit_ = body_taken_ = 0;
  }
  const size_t held = header_.size();
  std::string_view all = bytes;
  if (held > 0) {
    header_ += bytes;
    all = header_;
  }
  size_t used = 0;
  boost::system::error_code ec;
  while (used < all.size() && !parser->is_done()) {
    const bool in_chunks = parser->is_header_done() && parser->chunked();
    if (in_chunks && all.size() - used < kShortestEnd.size()) break;  // the end is still to come
    const size_t n = parser->put(boost::asio::buffer(all.data() + used, all.size() - used), ec);
    used += n;
    if (ec || n == 0) break;
    TakeHeader();
    CheckBody();
    if (error_status_ != 0) return bytes.size();
  }
  if (ec == beast::error::need_more) ec = {};
  TakeHeader();
  CheckFraming();
  CheckBody();
  if (error_status_ != 0) return bytes.size();
  if (ec) {
    const bool header = ec == beast::error::header_limit;
    Fail(header ? 431 : 400,
         header ? fmt::format("the header is larger than {} bytes", limits_.header_bytes)
                : fmt::format("not an HTTP/1.1 request: {}", ec.message()));
    return bytes.size();
  }
  if (parser->is_done()) {
    header_.clear();
    return used > held ? used - held : 0;
  }
  // The rest is an incomplete header (or chunk header), which the parser must see again with what
  // follows.
  std::string rest(all.substr(used));
  header_ = std::move(rest);
  if (header_.size() > limits_.header_bytes) {
    Fail(431, fmt::format("the header is larger than {} bytes", limits_.header_bytes));
  }
  return bytes.size();
}

// Once, when the header is there and nothing behind it was parsed.
void HttpParser::TakeHeader() {
  if (impl_->header || !impl_->parser->is_header_done()) return;
  const auto& message = impl_->parser->get();
  impl_->header = WithoutBody(message);
  impl_->wants_continue = boost::beast::iequals(message[beast::field::expect], "100-continue");
  const size_t hosts = message.count(beast::field::host);
  if (hosts > 1) Fail(400, "more than one Host header");
  if (hosts == 0 && message.version() >= 11) Fail(400, "no Host header: HTTP/1.1 requires one");
  if (hosts == 1 && !IsAuthority(impl_->header->host))
    Fail(400, "Host: expected a name or an address, and a port if any");
  impl_->parser->eager(true);
}

void HttpParser::Fail(int status, std::string why) {
  error_status_ = status;
  error_ = std::move(why);
}

// Beast ignores a transfer coding that it does not know, and takes what follows the header for the
// next request, where a proxy in front may see a body.
void HttpParser::CheckFraming() {
  if (!impl_->parser->is_header_done()) return;
  const auto& message = impl_->parser->get();
  const size_t codings = message.count(beast::field::transfer_encoding);
  if (codings == 0) return;
  if (message.version() < 11) {
    Fail(400, "Transfer-Encoding in HTTP/1.0");
  } else if (message.count(beast::field::content_length) > 0) {
    Fail(400, "both Transfer-Encoding and Content-Length");
  } else if (codings > 1 ||
             !boost::beast::iequals(message[beast::field::transfer_encoding], "chunked")) {
    Fail(501, "Transfer-Encoding: expected chunked");
  }
}

// Refuses a body that is larger than the limit, by its Content-Length before any of it has come.
void HttpParser::CheckBody() {
  auto& parser = impl_->parser;
  if (error_status_ != 0 || !parser || !parser->is_header_done()) return;
  if (body_limit_ == 0) {
    CheckFraming();
    if (error_status_ != 0) return;
    const auto& message = parser->get();
    const std::string method(message.method_string());
    std::optional<size_t> streamed;
    if (limits_.streamed)
      streamed = limits_.streamed(method, PathOf(std::string(message.target())));
    body_limit_ = streamed.value_or(limits_.body_bytes);
  }
  const uint64_t length = parser->content_length().value_or(0);
  if (std::max<uint64_t>(length, body_taken_ + parser->get().body().size()) <= body_limit_) return;
  Fail(413,
       fmt::format("the body is larger than the {} bytes that this server takes", body_limit_));
}

std::string HttpParser::TakeBody() {
  if (!impl_->parser || !impl_->parser->is_header_done()) return "";
  std::string body = std::exchange(impl_->parser->get().body(), {});
  body_taken_ += body.size();
  return body;
}

bool HttpParser::done() const {
  return error_status_ == 0 && impl_->parser && impl_->parser->is_done();
}
bool HttpParser::begun() const { return impl_->parser.has_value(); }

size_t HttpParser::held_bytes() const {
  return header_.size() + (impl_->parser ? impl_->parser->get().body().size() : 0);
}

std::string HttpParser::path() const {
  return impl_->parser ? PathOf(std::string(impl_->parser->get().target())) : "";
}

bool HttpParser::wants_continue() {
  if (continue_told_ || !impl_->parser || !impl_->parser->is_header_done() || done()) return false;
  if (!impl_->wants_continue) return false;
  continue_told_ = true;
  return true;
}

std::optional<HttpRequest> HttpParser::NewHeader() {
  if (header_told_ || error_status_ != 0 || !impl_->parser || !impl_->parser->is_header_done())
    return {};
  header_told_ = true;
  return impl_->header;
}

HttpRequest HttpParser::Take() {
  auto message = impl_->parser->release();
  impl_->parser.reset();
  HttpRequest request = *std::exchange(impl_->header, std::nullopt);
  request.body = std::move(message.body());
  return request;
}

}  // namespace larder::serving::http

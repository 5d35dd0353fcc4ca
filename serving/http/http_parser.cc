#include "serving/http/http_parser.h"

#include <fmt/format.h>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <optional>

namespace larder::serving::inline http {

namespace http = boost::beast::http;

namespace {

// What a chunked body ends with, at least. Beast asserts that it sees all of it once it has seen
// the zero.
constexpr std::string_view kShortestEnd = "0\r\n\r\n";

std::string PathOf(const std::string& target) { return target.substr(0, target.find('?')); }

// The request without its body.
HttpRequest Head(const http::request<http::string_body>& message) {
  const auto text = [](boost::beast::string_view view) {
    return std::string(view.data(), view.size());
  };
  HttpRequest request;
  request.method = text(message.method_string());
  request.target = text(message.target());
  request.path = PathOf(request.target);
  request.authorization = text(message[http::field::authorization]);
  request.api_key = text(message["X-Api-Key"]);
  request.origin = text(message[http::field::origin]);
  request.host = text(message[http::field::host]);
  request.fetch_site = text(message["Sec-Fetch-Site"]);
  request.wants_headers = text(message[http::field::access_control_request_headers]);
  request.content_type = text(message[http::field::content_type]);
  request.keep_alive = message.keep_alive();
  request.http10 = message.version() == 10;
  return request;
}

}  // namespace

struct HttpParser::Impl {
  std::optional<http::request_parser<http::string_body>> parser;
};

HttpParser::HttpParser(const HttpLimits& limits)
    : limits_(limits), impl_(std::make_unique<Impl>()) {}
HttpParser::~HttpParser() = default;

size_t HttpParser::Feed(std::string_view bytes) {
  if (error_status_ != 0 || done() || bytes.empty()) return 0;
  auto& parser = impl_->parser;
  if (!parser) {
    parser.emplace();
    parser->eager(true);
    parser->header_limit(static_cast<uint32_t>(limits_.header_bytes));
    parser->body_limit(limits_.body_bytes);
    continue_told_ = head_told_ = false;
  }
  const size_t held = head_.size();
  std::string_view all = bytes;
  if (held > 0) {
    head_ += bytes;
    all = head_;
  }
  size_t used = 0;
  boost::system::error_code ec;
  while (used < all.size() && !parser->is_done()) {
    const bool in_chunks = parser->is_header_done() && parser->chunked();
    if (in_chunks && all.size() - used < kShortestEnd.size()) break;  // the end is still to come
    const size_t n = parser->put(boost::asio::buffer(all.data() + used, all.size() - used), ec);
    used += n;
    if (ec || n == 0) break;
  }
  if (ec == http::error::need_more) ec = {};
  CheckFraming();
  if (error_status_ != 0) return bytes.size();
  if (ec) {
    const bool body = ec == http::error::body_limit;
    const bool header = ec == http::error::header_limit;
    Fail(body     ? 413
         : header ? 431
                  : 400,
         body     ? fmt::format("the body is larger than the {} bytes that this server takes",
                                limits_.body_bytes)
         : header ? fmt::format("the header is larger than {} bytes", limits_.header_bytes)
                  : fmt::format("not an HTTP/1.1 request: {}", ec.message()));
    return bytes.size();
  }
  if (parser->is_done()) {
    head_.clear();
    return used > held ? used - held : 0;
  }
  // The rest is an incomplete header (or chunk header), which the parser must see again with what
  // follows.
  std::string rest(all.substr(used));
  head_ = std::move(rest);
  if (head_.size() > limits_.header_bytes) {
    Fail(431, fmt::format("the header is larger than {} bytes", limits_.header_bytes));
  }
  return bytes.size();
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
  if (message.count(http::field::host) > 1) return Fail(400, "more than one Host");
  const size_t codings = message.count(http::field::transfer_encoding);
  if (codings == 0) return;
  if (message.version() < 11) {
    Fail(400, "Transfer-Encoding in HTTP/1.0");
  } else if (message.count(http::field::content_length) > 0) {
    Fail(400, "both Transfer-Encoding and Content-Length");
  } else if (codings > 1 ||
             !boost::beast::iequals(message[http::field::transfer_encoding], "chunked")) {
    Fail(501, "Transfer-Encoding: expected chunked");
  }
}

bool HttpParser::done() const {
  return error_status_ == 0 && impl_->parser && impl_->parser->is_done();
}
bool HttpParser::begun() const { return impl_->parser.has_value(); }

size_t HttpParser::held_bytes() const {
  return head_.size() + (impl_->parser ? impl_->parser->get().body().size() : 0);
}

std::string HttpParser::path() const {
  return impl_->parser ? PathOf(std::string(impl_->parser->get().target())) : "";
}

bool HttpParser::wants_continue() {
  if (continue_told_ || !impl_->parser || !impl_->parser->is_header_done() || done()) return false;
  const auto& message = impl_->parser->get();
  if (!boost::beast::iequals(message[http::field::expect], "100-continue")) return false;
  continue_told_ = true;
  return true;
}

std::optional<HttpRequest> HttpParser::NewHead() {
  if (head_told_ || error_status_ != 0 || !impl_->parser || !impl_->parser->is_header_done())
    return {};
  head_told_ = true;
  return Head(impl_->parser->get());
}

HttpRequest HttpParser::Take() {
  auto message = impl_->parser->release();
  impl_->parser.reset();
  HttpRequest request = Head(message);
  request.body = std::move(message.body());
  return request;
}

}  // namespace larder::serving::http

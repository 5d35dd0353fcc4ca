#include "serving/net/batch_routes.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/descriptor.h"
#include "serving/fields/json_fields.h"
#include "serving/reply/error_reply.h"
#include "serving/stored/list_query.h"

namespace larder::serving::inline net {
namespace {

using nlohmann::json;

constexpr std::string_view kFiles = "/v1/files", kBatches = "/v1/batches";
constexpr std::array kEndpoints = {"/v1/chat/completions", "/v1/completions", "/v1/responses",
                                   "/v1/embeddings"};
constexpr size_t kMostPairs = 16, kMostKeyBytes = 64, kMostValueBytes = 512;  // as OpenAI's

BatchReply Reply(const json& value) {
  return {.reply = {.body = Dump(value), .headers = {}}, .download = {}, .stopped = {}};
}

// The part of a list that a client asks for.
template <typename T>
BatchReply Page(const std::vector<T>& all, const HttpRequest& request, size_t usual, size_t most) {
  const size_t limit = LimitOf(request.target, usual, most);
  auto begin = all.begin();
  if (const std::string after = QueryOf(request.target, "after"); !after.empty()) {
    begin = std::find_if(all.begin(), all.end(), [&](const T& one) { return one->id == after; });
    if (begin == all.end())
      throw Refused(400, "after is {}: expected the id of an entry of this list", Excerpt(after))
          .On("after");
    ++begin;
  }
  const auto end =
      begin + static_cast<std::ptrdiff_t>(std::min(limit, static_cast<size_t>(all.end() - begin)));
  json data = json::array();
  for (auto one = begin; one != end; ++one) data.push_back((*one)->ToJson());
  return Reply({{"object", "list"},
                {"first_id", begin == end ? json(nullptr) : json((*begin)->id)},
                {"last_id", begin == end ? json(nullptr) : json((*std::prev(end))->id)},
                {"has_more", end != all.end()},
                {"data", std::move(data)}});
}

BatchReply ListFiles(const HttpRequest& request, Tenant tenant, BatchStore& store) {
  std::vector<const StoredFile*> list = store.Files(tenant);
  const std::string purpose = QueryOf(request.target, "purpose");
  if (!purpose.empty())
    std::erase_if(list, [&](const StoredFile* of) { return of->purpose != purpose; });
  if (!WantsNewestFirst(request.target)) std::ranges::reverse(list);
  return Page(list, request, 1000, 1000);
}

const StoredFile& FileOf(std::string_view id, Tenant tenant, const BatchStore& store) {
  const StoredFile* file = store.FindFile(id, tenant);
  if (file == nullptr) throw Refused(404, "there is no file {}", Excerpt(std::string(id))).On("id");
  return *file;
}

Descriptor OpenFile(const BatchStore& store, const std::string& id) {
  const std::string path = store.PathOf(id);
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file) throw Error("{}: can't open: {}", path, std::strerror(errno));
  return file;
}

BatchReply Content(const StoredFile& file, const BatchStore& store) {
  OpenFile(store, file.id);  // throws before there is an answer
  BatchReply answer;
  answer.reply.content_type = "application/octet-stream";
  // A browser must not show what a client sent as a page of this server's.
  answer.reply.headers = "Content-Disposition: attachment\r\nX-Content-Type-Options: nosniff\r\n";
  answer.download = {.id = file.id, .at = 0, .bytes = file.bytes};
  return answer;
}

void WantMethod(const HttpRequest& request, std::string_view methods) {
  throw Refused(405, "{} takes {}, not {}", Excerpt(request.path), methods, Excerpt(request.method))
      .Allowing(std::string(methods));
}

// "/content" and "/cancel" behind an id.
std::string_view CutEnd(std::string_view& id, std::string_view end) {
  if (!id.ends_with(end)) return "";
  id.remove_suffix(end.size());
  return end;
}

BatchReply AnswerFiles(const HttpRequest& request, Tenant tenant, BatchStore& store) {
  const bool get = request.method == "GET" || request.method == "HEAD";
  if (request.path == kFiles) {
    if (!get) WantMethod(request, "GET, POST");
    return ListFiles(request, tenant, store);
  }
  std::string_view id = std::string_view(request.path).substr(kFiles.size() + 1);
  const bool content = !CutEnd(id, "/content").empty();
  const StoredFile& file = FileOf(id, tenant, store);
  if (content) {
    if (!get) WantMethod(request, "GET");
    return Content(file, store);
  }
  if (get) return Reply(file.ToJson());
  if (request.method != "DELETE") WantMethod(request, "GET, DELETE");
  store.Remove(file);
  return Reply({{"id", id}, {"object", "file"}, {"deleted", true}});
}

json MetadataOf(const JsonFields& fields) {
  const Json* given = fields.Find("metadata");
  if (given == nullptr) return nullptr;
  const auto fail = [&] {
    JsonFields::Fail("metadata", *given,
                     fmt::format("an object of at most {} texts of at most {} bytes, with keys of "
                                 "at most {}",
                                 kMostPairs, kMostValueBytes, kMostKeyBytes));
  };
  if (!given->is_object() || given->size() > kMostPairs) fail();
  json metadata = json::object();
  for (const auto& [key, value] : given->items()) {
    if (key.size() > kMostKeyBytes || !value.is_string() ||
        value.get_ref<const std::string&>().size() > kMostValueBytes)
      fail();
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

BatchReply CreateBatch(const HttpRequest& request, Tenant tenant, BatchService::Files& files) {
  const Json body = ParseJson(request.body);
  const JsonFields fields(body);
  BatchRecord record;
  record.tenant = tenant;
  record.endpoint = fields.String("endpoint", "");
  if (std::find(kEndpoints.begin(), kEndpoints.end(), record.endpoint) == kEndpoints.end())
    throw Refused(400, "endpoint is {}: expected {}", Excerpt(record.endpoint),
                  fmt::join(kEndpoints, ", "))
        .On("endpoint");
  record.window = fields.String("completion_window", "");
  if (record.window != "24h")
    throw Refused(400, "completion_window is {}: expected 24h; batches do not expire here",
                  Excerpt(record.window))
        .On("completion_window");
  record.metadata = MetadataOf(fields);
  record.input = fields.String("input_file_id", "");
  const StoredFile* input = files.store.FindFile(record.input, tenant);
  if (input == nullptr)
    throw Refused(404, "there is no file {}", Excerpt(record.input)).On("input_file_id");
  if (input->purpose != "batch")
    throw Refused(400, "{} has the purpose {}: expected batch", input->id, input->purpose)
        .On("input_file_id");
  const BatchRecord& added = files.store.AddBatch(std::move(record));
  files.jobs.Open(added.id);
  return Reply(added.ToJson());
}

BatchReply AnswerBatches(const HttpRequest& request, Tenant tenant, BatchService::Files& files) {
  const bool get = request.method == "GET" || request.method == "HEAD";
  if (request.path == kBatches) {
    if (request.method == "POST") return CreateBatch(request, tenant, files);
    if (!get) WantMethod(request, "GET, POST");
    return Page(files.store.Batches(tenant), request, 20, 100);
  }
  std::string_view id = std::string_view(request.path).substr(kBatches.size() + 1);
  const bool cancel = !CutEnd(id, "/cancel").empty();
  BatchRecord* record = files.store.FindBatch(id, tenant);
  if (record == nullptr)
    throw Refused(404, "there is no batch {}", Excerpt(std::string(id))).On("id");
  if (!cancel) {
    if (!get) WantMethod(request, "GET");
    return Reply(record->ToJson());
  }
  if (request.method != "POST") WantMethod(request, "POST");
  files.jobs.Cancel(*record);
  BatchReply answer = Reply(record->ToJson());
  answer.stopped = record->id;
  return answer;
}

}  // namespace

bool IsUpload(const HttpRequest& request) {
  return request.method == "POST" && request.path == kFiles;
}

void ReadPart(const BatchStore& store, const Download& of, std::string& part) {
  ssize_t got = 0;
  try {
    const Descriptor file = OpenFile(store, of.id);
    got = ::pread(file.get(), part.data(), part.size(), static_cast<off_t>(of.at));
  } catch (const Error&) {  // deleted since
  }
  part.resize(got > 0 ? static_cast<size_t>(got) : 0);
}

BatchReply AnswerBatchRoute(const HttpRequest& request, Tenant tenant, BatchService::Files& files) {
  return request.path.starts_with(kFiles) ? AnswerFiles(request, tenant, files.store)
                                          : AnswerBatches(request, tenant, files);
}

}  // namespace larder::serving::net

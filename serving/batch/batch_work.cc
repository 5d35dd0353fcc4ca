#include "serving/batch/batch_work.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.h"
#include "base/error.h"

namespace larder::serving::inline batch {
namespace {

using nlohmann::json;

constexpr double kSyncEveryS = 1;

// The items of a response, "msg_..." and others: the request's id instead of the server's.
void NameItems(json& items, const std::string& id) {
  if (!items.is_array()) return;
  size_t at = 0;
  for (json& item : items) {
    const auto name = item.is_object() ? item.find("id") : item.end();
    if (name != item.end() && name->is_string()) {
      const auto& text = name->get_ref<const std::string&>();
      *name = fmt::format("{}_{}-{}", text.substr(0, text.find('_')), id, at);
    }
    ++at;
  }
}

}  // namespace

uint64_t SeedOf(const BatchJob& job, const BatchLine& line) {
  return (job.seed ^ HashOfId(line.custom_id).low) & uint64_t{INT64_MAX};
}

std::string BatchIdOf(const BatchLine& line) {
  return fmt::format("{:016x}", HashOfId(line.custom_id).high);
}

BatchWork::BatchWork(const BatchJob& job, BatchInput& input, BatchOutput& output,
                     BatchOutput& errors, std::vector<bool> done, std::function<bool()> stopped,
                     std::function<void(const BatchProgress&)> changed)
    : job_(job),
      input_(input),
      output_(output),
      errors_(errors),
      done_(std::move(done)),
      stopped_(std::move(stopped)),
      changed_(std::move(changed)),
      synced_ns_(NowNs()) {
  progress_.done = static_cast<size_t>(std::count(done_.begin(), done_.end(), true));
}

void BatchWork::Fail(const std::string& why) {
  if (error_.empty()) error_ = why;
}

std::optional<BatchLine> BatchWork::Next() {
  if (ended()) all_begun_ = true;
  while (!all_begun_) {
    std::optional<BatchLine> line;
    try {
      line = input_.Next();
    } catch (const Error& error) {
      Fail(error.what());
    }
    if (!line) {
      all_begun_ = true;
    } else if (!done_[line->index]) {
      return line;
    }
  }
  return std::nullopt;
}

void BatchWork::Answer(const BatchLine& line, json body) {
  const bool responses = line.dialect == Dialect::kResponses;
  if (const auto usage = body.find("usage"); usage != body.end() && usage->is_object()) {
    progress_.prompt_tokens +=
        usage->value(responses ? "input_tokens" : "prompt_tokens", size_t{0});
    progress_.generated_tokens +=
        usage->value(responses ? "output_tokens" : "completion_tokens", size_t{0});
    usage->erase("prompt_tokens_details");  // as the timings, of this run
    usage->erase("input_tokens_details");
  }
  body.erase("timings");
  const std::string id = BatchIdOf(line);
  if (responses) {
    body["id"] = "resp_" + id;
    body["created_at"] = job_.created;
    if (const auto items = body.find("output"); items != body.end()) NameItems(*items, id);
  } else if (line.dialect != Dialect::kEmbeddings) {  // an embedding has no id
    body["id"] = fmt::format("{}-{}", line.dialect == Dialect::kChat ? "chatcmpl" : "cmpl", id);
    body["created"] = job_.created;
  }
  Write(line, 200, body);
}

void BatchWork::AnswerError(const BatchLine& line, int status, const json& body) {
  Write(line, status, body);
}

void BatchWork::Write(const BatchLine& line, int status, const json& body) {
  if (!error_.empty()) return;  // a line that was cut must stay the last one
  try {
    progress_.bytes += (status == 200 ? output_ : errors_).Append(line, status, body);
  } catch (const Error& error) {
    Fail(error.what());
    return;
  }
  ++progress_.done;
  progress_.failed += status != 200;
  changed_(progress_);
}

void BatchWork::SyncIfDue() {
  if (SecondsSince(synced_ns_) < kSyncEveryS) return;
  synced_ns_ = NowNs();
  try {
    output_.Sync();
    if (&errors_ != &output_) errors_.Sync();
  } catch (const Error& error) {
    Fail(error.what());
  }
}

}  // namespace larder::serving::batch

// The defaults of clients' requests, from a model and the command line of `serve` or `batch`.
#pragma once

#include <memory>
#include <string>

#include "model/chat/chat_template.h"
#include "model/gguf/gguf.h"
#include "model/tokenizer/tokenizer.h"
#include "node/options/answer_options.h"
#include "node/options/sampling_options.h"
#include "serving/api/completion_request.h"
#include "serving/batch/served_model.h"

namespace larder::node::inline tasks {

// The template called `name`, or the model's, or else ChatML, with a line in the log. Throws Error
// if no template has the name. `file`: for messages.
std::shared_ptr<const model::ChatTemplate> ChooseTemplate(const std::string& name,
                                                          const std::string& file,
                                                          const model::Tokenizer&);

// Without an alias the model's name is the file's. The context and the fingerprint are not known
// before the model is planned. Throws CLI::ValidationError.
serving::CompletionDefaults DefaultsOf(const model::GgufFile& file,
                                       std::shared_ptr<const model::Tokenizer> tokenizer,
                                       const SamplingOptions& sampling,
                                       const AnswerOptions& answers);

// What answers with these defaults depend on besides requests. The context must be known.
serving::ServedModel ServedModelOf(const serving::CompletionDefaults& defaults,
                                   const AnswerOptions& answers, size_t slots);

// The defaults of the command line that change answers, as a text that a job keeps.
std::string RequestDefaultsText(const SamplingOptions& sampling, const AnswerOptions& answers,
                                const serving::ServedModel& served);

}  // namespace larder::node::tasks

// llama_logits: our program on the public API of the user's llama.cpp. It runs token ids as one
// sequence and writes the logits of every position, [ids][vocab] float32. It is not part of the
// build: bench/compare compiles it against the headers that the user names.
//   llama_logits MODEL IDS LOGITS THREADS KV      KV: f16, or q8_0 (with flash attention)
#include <ggml.h>
#include <llama.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

[[noreturn]] void Fail(const std::string& text) {
  std::fprintf(stderr, "llama_logits: %s\n", text.c_str());
  std::exit(1);
}

// The field's name and type changed over time: a bool flash_attn, then an enum flash_attn_type (0
// is off, 1 is on). A template, so that only the existing field is compiled.
template <typename Params>
void SetFlashAttention(Params& params, bool on) {
  if constexpr (requires { params.flash_attn; }) {
    params.flash_attn = on;
  } else if constexpr (requires { params.flash_attn_type; }) {
    params.flash_attn_type = static_cast<decltype(params.flash_attn_type)>(on ? 1 : 0);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) Fail("expected MODEL IDS LOGITS THREADS KV");
  const std::string kv = argv[5];
  if (kv != "f16" && kv != "q8_0") Fail("KV is f16 or q8_0, not " + kv);
  std::ifstream ids_file(argv[2]);
  std::vector<llama_token> ids{std::istream_iterator<llama_token>(ids_file), {}};
  if (ids.empty() || !ids_file.eof())
    Fail(std::string(argv[2]) + ": expected numbers and spaces only");

  llama_backend_init();
  llama_model_params model_params = llama_model_default_params();
  model_params.n_gpu_layers = 0;
  llama_model* model = llama_model_load_from_file(argv[1], model_params);
  if (model == nullptr) Fail(std::string(argv[1]) + ": cannot be loaded");
  const auto vocab = static_cast<size_t>(llama_vocab_n_tokens(llama_model_get_vocab(model)));

  llama_context_params params = llama_context_default_params();
  const auto count = static_cast<uint32_t>(ids.size());
  params.n_ctx = (count + 255) / 256 * 256;
  params.n_batch = count;
  params.n_threads = params.n_threads_batch = std::atoi(argv[4]);
  SetFlashAttention(params, kv == "q8_0");
  if (kv == "q8_0") params.type_k = params.type_v = GGML_TYPE_Q8_0;
  llama_context* context = llama_init_from_model(model, params);
  if (context == nullptr) Fail("no context: is q8_0 KV supported by this build?");

  llama_batch batch = llama_batch_init(static_cast<int32_t>(count), 0, 1);
  for (uint32_t i = 0; i < count; ++i) {
    batch.token[i] = ids[i];
    batch.pos[i] = static_cast<llama_pos>(i);
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = 1;
  }
  batch.n_tokens = static_cast<int32_t>(count);
  if (llama_decode(context, batch) != 0) Fail("llama_decode failed");
  std::ofstream out(argv[3], std::ios::binary);
  for (uint32_t i = 0; i < count; ++i) {
    out.write(reinterpret_cast<const char*>(llama_get_logits_ith(context, static_cast<int32_t>(i))),
              static_cast<std::streamsize>(vocab * sizeof(float)));
  }
  if (!out.flush()) Fail(std::string(argv[3]) + ": cannot be written");
  llama_batch_free(batch);
  llama_free(context);
  return 0;  // the process's end frees the model, since the function to free it was renamed over
             // time
}

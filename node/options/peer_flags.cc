#include "node/options/peer_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include "base/error.h"

namespace larder::node::inline options {
namespace {

using Fate = PeerFlag::Fate;
using Value = PeerFlag::Value;

constexpr auto kFlags = std::to_array<PeerFlag>({
    // clang-format off
    {Peer::kLlamaServer, "-t, --threads", Value::kOne, Fate::kTaken, "--threads"},
    {Peer::kLlamaServer, "-tb, --threads-batch", Value::kOne, Fate::kNothing, "prompts have the same threads as answers"},
    {Peer::kLlamaServer, "-C, --cpu-mask", Value::kOne, Fate::kRefused, "threads are pinned to one core each: -t says how many, and taskset which"},
    {Peer::kLlamaServer, "-Cr, --cpu-range", Value::kOne, Fate::kRefused, "threads are pinned to one core each: -t says how many, and taskset which"},
    {Peer::kLlamaServer, "-Cb, --cpu-mask-batch", Value::kOne, Fate::kRefused, "threads are pinned to one core each: -t says how many, and taskset which"},
    {Peer::kLlamaServer, "-Crb, --cpu-range-batch", Value::kOne, Fate::kRefused, "threads are pinned to one core each: -t says how many, and taskset which"},
    {Peer::kLlamaServer, "--cpu-strict, --cpu-strict-batch", Value::kOne, Fate::kNothing, "threads are pinned"},
    {Peer::kLlamaServer, "--prio, --prio-batch", Value::kOne, Fate::kNothing, "priorities are the system's"},
    {Peer::kLlamaServer, "--poll, --poll-batch", Value::kOne, Fate::kNothing, "threads spin, then sleep; --isolated: they spin only"},
    {Peer::kLlamaServer, "--numa", Value::kOne, Fate::kNothing, "each thread's weights and KV lie on its own node"},
    {Peer::kLlamaServer, "-c, --ctx-size", Value::kOne, Fate::kTaken, "--ctx-size"},
    {Peer::kLlamaServer, "-n, --predict, --n-predict", Value::kOne, Fate::kTaken, "--n-predict"},
    {Peer::kLlamaServer, "-b, --batch-size", Value::kOne, Fate::kNothing, "the rows of a step follow from --max-stall-ms"},
    {Peer::kLlamaServer, "-ub, --ubatch-size", Value::kOne, Fate::kTaken, "--ubatch-size"},
    {Peer::kLlamaServer, "--keep", Value::kOne, Fate::kRefused, "a full context ends the text: nothing is shifted"},
    {Peer::kLlamaServer, "--context-shift", Value::kNone, Fate::kRefused, "a full context ends the text: nothing is shifted"},
    {Peer::kLlamaServer, "--no-context-shift", Value::kNone, Fate::kNothing, "nothing is shifted"},
    {Peer::kLlamaServer, "--swa-full", Value::kNone, Fate::kNothing, "all of the KV cache is kept"},
    {Peer::kLlamaServer, "-fa, --flash-attn", Value::kMaybe, Fate::kNothing, "attention goes through the cache once, in tiles"},
    {Peer::kLlamaServer, "-ctk, --cache-type-k", Value::kOne, Fate::kNothing, "the KV cache is INT8"},
    {Peer::kLlamaServer, "-ctv, --cache-type-v", Value::kOne, Fate::kNothing, "the KV cache is INT8"},
    {Peer::kLlamaServer, "-dt, --defrag-thold", Value::kOne, Fate::kNothing, "the KV cache has chunks, which need no order"},
    {Peer::kLlamaServer, "-kvu, --kv-unified", Value::kNone, Fate::kNothing, "slots share chunks; --kv-tokens says how many there are"},
    {Peer::kLlamaServer, "-no-kvu, --no-kv-unified", Value::kNone, Fate::kNothing, "slots share chunks; --kv-tokens says how many there are"},
    {Peer::kLlamaServer, "--kv-unified-per-slot", Value::kOne, Fate::kRefused, "-c is each slot's own context, --kv-tokens what all have together"},
    {Peer::kLlamaServer, "-np, --parallel", Value::kOne, Fate::kTaken, "--parallel"},
    {Peer::kLlamaServer, "-cb, --cont-batching", Value::kNone, Fate::kNothing, "requests come and go at every step"},
    {Peer::kLlamaServer, "-nocb, --no-cont-batching", Value::kNone, Fate::kRefused, "requests come and go at every step"},
    {Peer::kLlamaServer, "--cache-prompt", Value::kNone, Fate::kTaken, "--cache-prompt"},
    {Peer::kLlamaServer, "--no-cache-prompt", Value::kNone, Fate::kTaken, "--no-cache-prompt"},
    {Peer::kLlamaServer, "--cache-reuse", Value::kOne, Fate::kNothing, "a prompt's KV is used up to the first other token: what is behind has other bits"},
    {Peer::kLlamaServer, "-cram, --cache-ram", Value::kOne, Fate::kTaken, "--cache-ram"},
    {Peer::kLlamaServer, "--cache-idle-slots", Value::kNone, Fate::kNothing, "an ended sequence is kept without its slot"},
    {Peer::kLlamaServer, "--no-cache-idle-slots", Value::kNone, Fate::kNothing, "an ended sequence is kept without its slot until its KV is needed"},
    {Peer::kLlamaServer, "-ctxcp, --ctx-checkpoints, --swa-checkpoints", Value::kOne, Fate::kNothing, "states are kept where sequences go on (docs/models.md, States)"},
    {Peer::kLlamaServer, "-cms, --checkpoint-min-step", Value::kOne, Fate::kNothing, "states are kept where sequences go on (docs/models.md, States)"},
    {Peer::kLlamaServer, "-sps, --slot-prompt-similarity", Value::kOne, Fate::kNothing, "a prompt takes the slot or the ended sequence with the longest common beginning"},
    {Peer::kLlamaServer, "--slot-save-path", Value::kOne, Fate::kTaken, "--slot-save-path"},
    {Peer::kLlamaServer, "-m, --model", Value::kOne, Fate::kTaken, "--model"},
    {Peer::kLlamaServer, "-mu, --model-url", Value::kOne, Fate::kRefused, "Larder opens files alone: download the model, then -m FILE"},
    {Peer::kLlamaServer, "-dr, --docker-repo", Value::kOne, Fate::kRefused, "Larder opens files alone: download the model, then -m FILE"},
    {Peer::kLlamaServer, "-hf, -hfr, --hf-repo", Value::kOne, Fate::kRefused, "Larder opens files alone: download the model, then -m FILE"},
    {Peer::kLlamaServer, "-hff, --hf-file", Value::kOne, Fate::kRefused, "Larder opens files alone: download the model, then -m FILE"},
    {Peer::kLlamaServer, "-hft, --hf-token", Value::kOne, Fate::kRefused, "Larder opens files alone: download the model, then -m FILE"},
    {Peer::kLlamaServer, "-cl, --cache-list", Value::kNone, Fate::kRefused, "Larder opens files alone: download the model, then -m FILE"},
    {Peer::kLlamaServer, "--offline", Value::kNone, Fate::kNothing, "Larder never fetches anything"},
    {Peer::kLlamaServer, "-lm, --load-mode", Value::kOne, Fate::kNothing, "weights are packed into panels in memory, and the file is closed"},
    {Peer::kLlamaServer, "--mlock", Value::kNone, Fate::kNothing, "weights are read in every step"},
    {Peer::kLlamaServer, "--mmap", Value::kNone, Fate::kNothing, "weights are packed into panels in memory"},
    {Peer::kLlamaServer, "--no-mmap", Value::kNone, Fate::kNothing, "weights are packed into panels in memory"},
    {Peer::kLlamaServer, "-dio, --direct-io, --no-direct-io", Value::kNone, Fate::kNothing, "the file is read once"},
    {Peer::kLlamaServer, "-lzm, --lazy-mode", Value::kOne, Fate::kNothing, "all that is needed is read at start"},
    {Peer::kLlamaServer, "--repack", Value::kNone, Fate::kNothing, "weights are packed into panels"},
    {Peer::kLlamaServer, "-nr, --no-repack", Value::kNone, Fate::kRefused, "the kernels read panels"},
    {Peer::kLlamaServer, "--no-host", Value::kNone, Fate::kNothing, "there is no GPU: layers lie in the caches of CPUs"},
    {Peer::kLlamaServer, "--check-tensors", Value::kNone, Fate::kNothing, "what is read is checked"},
    {Peer::kLlamaServer, "--override-kv", Value::kOne, Fate::kRefused, "what the file says is used"},
    {Peer::kLlamaServer, "--warmup, --no-warmup", Value::kNone, Fate::kNothing, "the first step is the warm-up"},
    {Peer::kLlamaServer, "--rope-scaling", Value::kOne, Fate::kRefused, "rotations are those of the model's file"},
    {Peer::kLlamaServer, "--rope-scale", Value::kOne, Fate::kRefused, "rotations are those of the model's file"},
    {Peer::kLlamaServer, "--rope-freq-base", Value::kOne, Fate::kRefused, "rotations are those of the model's file"},
    {Peer::kLlamaServer, "--rope-freq-scale", Value::kOne, Fate::kRefused, "rotations are those of the model's file"},
    {Peer::kLlamaServer, "--yarn-orig-ctx", Value::kOne, Fate::kRefused, "rotations are those of the model's file"},
    {Peer::kLlamaServer, "--yarn-ext-factor", Value::kOne, Fate::kRefused, "rotations are those of the model's file"},
    {Peer::kLlamaServer, "--yarn-attn-factor", Value::kOne, Fate::kRefused, "rotations are those of the model's file"},
    {Peer::kLlamaServer, "--yarn-beta-slow", Value::kOne, Fate::kRefused, "rotations are those of the model's file"},
    {Peer::kLlamaServer, "--yarn-beta-fast", Value::kOne, Fate::kRefused, "rotations are those of the model's file"},
    {Peer::kLlamaServer, "-ngl, --gpu-layers, --n-gpu-layers", Value::kOne, Fate::kNothing, "there is no GPU: layers lie in the caches of CPUs"},
    {Peer::kLlamaServer, "-kvo, --kv-offload, -nkvo, --no-kv-offload", Value::kNone, Fate::kNothing, "there is no GPU: layers lie in the caches of CPUs"},
    {Peer::kLlamaServer, "--op-offload, --no-op-offload", Value::kNone, Fate::kNothing, "there is no GPU: layers lie in the caches of CPUs"},
    {Peer::kLlamaServer, "-sm, --split-mode", Value::kOne, Fate::kRefused, "there is no GPU: layers lie in the caches of CPUs"},
    {Peer::kLlamaServer, "-ts, --tensor-split", Value::kOne, Fate::kRefused, "there is no GPU: layers lie in the caches of CPUs"},
    {Peer::kLlamaServer, "-mg, --main-gpu", Value::kOne, Fate::kRefused, "there is no GPU: layers lie in the caches of CPUs"},
    {Peer::kLlamaServer, "-dev, --device", Value::kOne, Fate::kRefused, "there is no GPU: layers lie in the caches of CPUs"},
    {Peer::kLlamaServer, "--list-devices", Value::kNone, Fate::kRefused, "`larder doctor` shows the machine"},
    {Peer::kLlamaServer, "-ot, --override-tensor", Value::kOne, Fate::kRefused, "there is no GPU: layers lie in the caches of CPUs"},
    {Peer::kLlamaServer, "-cmoe, --cpu-moe", Value::kNone, Fate::kNothing, "there is no GPU: layers lie in the caches of CPUs"},
    {Peer::kLlamaServer, "-ncmoe, --n-cpu-moe, -ncffn, --n-cpu-ffn", Value::kOne, Fate::kNothing, "there is no GPU: layers lie in the caches of CPUs"},
    {Peer::kLlamaServer, "-fit, --fit", Value::kMaybe, Fate::kNothing, "there is no GPU: layers lie in the caches of CPUs"},
    {Peer::kLlamaServer, "-fitt, --fit-target", Value::kOne, Fate::kNothing, "there is no GPU: layers lie in the caches of CPUs"},
    {Peer::kLlamaServer, "-fitc, --fit-ctx", Value::kOne, Fate::kNothing, "there is no GPU: layers lie in the caches of CPUs"},
    {Peer::kLlamaServer, "--rpc", Value::kOne, Fate::kRefused, "other servers are sockets of a cluster: --manifest"},
    {Peer::kLlamaServer, "--lora", Value::kOne, Fate::kRefused, "there are no adapters: merge it into the model"},
    {Peer::kLlamaServer, "--lora-scaled", Value::kOne, Fate::kRefused, "there are no adapters: merge it into the model"},
    {Peer::kLlamaServer, "--lora-init-without-apply", Value::kNone, Fate::kRefused, "there are no adapters"},
    {Peer::kLlamaServer, "--control-vector", Value::kOne, Fate::kRefused, "there are no control vectors"},
    {Peer::kLlamaServer, "--control-vector-scaled", Value::kOne, Fate::kRefused, "there are no control vectors"},
    {Peer::kLlamaServer, "--control-vector-layer-range", Value::kOne, Fate::kRefused, "there are no control vectors"},
    {Peer::kLlamaServer, "-v, --verbose, --log-verbose", Value::kNone, Fate::kTaken, "--verbose"},
    {Peer::kLlamaServer, "-lv, --verbosity, --log-verbosity", Value::kOne, Fate::kNothing, "--log-level says it by name"},
    {Peer::kLlamaServer, "--log-disable", Value::kNone, Fate::kTaken, "--log-level=error"},
    {Peer::kLlamaServer, "--log-file", Value::kOne, Fate::kRefused, "standard error has the log: redirect it"},
    {Peer::kLlamaServer, "--log-jsonl", Value::kNone, Fate::kTaken, "--log-format=json"},
    {Peer::kLlamaServer, "--no-log-jsonl", Value::kNone, Fate::kTaken, "--log-format=text"},
    {Peer::kLlamaServer, "--log-colors", Value::kMaybe, Fate::kNothing, "a terminal gets colours"},
    {Peer::kLlamaServer, "--log-prefix, --no-log-prefix", Value::kNone, Fate::kNothing, "the journal has it"},
    {Peer::kLlamaServer, "--log-timestamps, --no-log-timestamps", Value::kNone, Fate::kNothing, "the journal has it"},
    {Peer::kLlamaServer, "--log-prompts-dir", Value::kOne, Fate::kRefused, "prompts are never logged"},
    {Peer::kLlamaServer, "--perf, --no-perf", Value::kNone, Fate::kNothing, "answers have timings"},
    {Peer::kLlamaServer, "--samplers", Value::kOne, Fate::kTaken, "--samplers"},
    {Peer::kLlamaServer, "-s, --seed", Value::kOne, Fate::kTaken, "--seed"},
    {Peer::kLlamaServer, "--ignore-eos", Value::kNone, Fate::kTaken, "--ignore-eos"},
    {Peer::kLlamaServer, "--temp, --temperature", Value::kOne, Fate::kTaken, "--temp"},
    {Peer::kLlamaServer, "--top-k", Value::kOne, Fate::kTaken, "--top-k"},
    {Peer::kLlamaServer, "--top-p", Value::kOne, Fate::kTaken, "--top-p"},
    {Peer::kLlamaServer, "--min-p", Value::kOne, Fate::kTaken, "--min-p"},
    {Peer::kLlamaServer, "--top-nsigma, --top-n-sigma", Value::kOne, Fate::kTaken, "--top-nsigma"},
    {Peer::kLlamaServer, "--xtc-probability", Value::kOne, Fate::kTaken, "--xtc-probability"},
    {Peer::kLlamaServer, "--xtc-threshold", Value::kOne, Fate::kTaken, "--xtc-threshold"},
    {Peer::kLlamaServer, "--typical, --typical-p", Value::kOne, Fate::kTaken, "--typical"},
    {Peer::kLlamaServer, "--repeat-last-n", Value::kOne, Fate::kTaken, "--repeat-last-n"},
    {Peer::kLlamaServer, "--repeat-penalty", Value::kOne, Fate::kTaken, "--repeat-penalty"},
    {Peer::kLlamaServer, "--presence-penalty", Value::kOne, Fate::kTaken, "--presence-penalty"},
    {Peer::kLlamaServer, "--frequency-penalty", Value::kOne, Fate::kTaken, "--frequency-penalty"},
    {Peer::kLlamaServer, "--dry-multiplier", Value::kOne, Fate::kTaken, "--dry-multiplier"},
    {Peer::kLlamaServer, "--dry-base", Value::kOne, Fate::kTaken, "--dry-base"},
    {Peer::kLlamaServer, "--dry-allowed-length", Value::kOne, Fate::kTaken, "--dry-allowed-length"},
    {Peer::kLlamaServer, "--dry-penalty-last-n", Value::kOne, Fate::kTaken, "--dry-penalty-last-n"},
    {Peer::kLlamaServer, "--dry-sequence-breaker", Value::kOne, Fate::kTaken, "--dry-sequence-breaker"},
    {Peer::kLlamaServer, "--dynatemp-range", Value::kOne, Fate::kTaken, "--dynatemp-range"},
    {Peer::kLlamaServer, "--dynatemp-exp", Value::kOne, Fate::kTaken, "--dynatemp-exp"},
    {Peer::kLlamaServer, "--mirostat", Value::kOne, Fate::kTaken, "--mirostat"},
    {Peer::kLlamaServer, "--mirostat-lr", Value::kOne, Fate::kTaken, "--mirostat-lr"},
    {Peer::kLlamaServer, "--mirostat-ent", Value::kOne, Fate::kTaken, "--mirostat-ent"},
    {Peer::kLlamaServer, "-l, --logit-bias", Value::kOne, Fate::kTaken, "--logit-bias"},
    {Peer::kLlamaServer, "--sampler-seq, --sampling-seq", Value::kOne, Fate::kRefused, "--samplers has their names"},
    {Peer::kLlamaServer, "--adaptive-target, --adaptive-decay", Value::kOne, Fate::kRefused, "there is no adaptive-p"},
    {Peer::kLlamaServer, "--grammar", Value::kOne, Fate::kRefused, "a constraint belongs to a request: `grammar`, `json_schema`"},
    {Peer::kLlamaServer, "--grammar-file", Value::kOne, Fate::kRefused, "a constraint belongs to a request: `grammar`, `json_schema`"},
    {Peer::kLlamaServer, "-j, --json-schema", Value::kOne, Fate::kRefused, "a constraint belongs to a request: `grammar`, `json_schema`"},
    {Peer::kLlamaServer, "-jf, --json-schema-file", Value::kOne, Fate::kRefused, "a constraint belongs to a request: `grammar`, `json_schema`"},
    {Peer::kLlamaServer, "-bs, --backend-sampling", Value::kNone, Fate::kNothing, "tokens are chosen on the threads of the model"},
    {Peer::kLlamaServer, "-e, --escape, --no-escape", Value::kNone, Fate::kNothing, "JSON has its own escapes"},
    {Peer::kLlamaServer, "-r, --reverse-prompt", Value::kOne, Fate::kRefused, "stop strings belong to a request: `stop`"},
    {Peer::kLlamaServer, "-sp, --special", Value::kNone, Fate::kTaken, "--special"},
    {Peer::kLlamaServer, "--host", Value::kOne, Fate::kTaken, "--host"},
    {Peer::kLlamaServer, "--port", Value::kOne, Fate::kTaken, "--port"},
    {Peer::kLlamaServer, "--reuse-port", Value::kNone, Fate::kRefused, "one process listens on a port"},
    {Peer::kLlamaServer, "-a, --alias", Value::kOne, Fate::kTaken, "--alias"},
    {Peer::kLlamaServer, "--tags", Value::kOne, Fate::kTaken, "--tags"},
    {Peer::kLlamaServer, "--api-key", Value::kOne, Fate::kTaken, "--api-key"},
    {Peer::kLlamaServer, "--api-key-file", Value::kOne, Fate::kTaken, "--api-key-file"},
    {Peer::kLlamaServer, "--ssl-key-file", Value::kOne, Fate::kRefused, "put a proxy that speaks TLS in front"},
    {Peer::kLlamaServer, "--ssl-cert-file", Value::kOne, Fate::kRefused, "put a proxy that speaks TLS in front"},
    {Peer::kLlamaServer, "-to, --timeout", Value::kOne, Fate::kTaken, "--timeout"},
    {Peer::kLlamaServer, "--sse-ping-interval", Value::kOne, Fate::kTaken, "--sse-ping-interval"},
    {Peer::kLlamaServer, "--threads-http", Value::kOne, Fate::kNothing, "one thread serves all connections"},
    {Peer::kLlamaServer, "--cors-origins", Value::kOne, Fate::kTaken, "--cors-origin"},
    {Peer::kLlamaServer, "--cors-methods", Value::kOne, Fate::kRefused, "what the routes need is allowed"},
    {Peer::kLlamaServer, "--cors-headers", Value::kOne, Fate::kRefused, "what the routes need is allowed"},
    {Peer::kLlamaServer, "--cors-credentials, --no-cors-credentials", Value::kNone, Fate::kNothing, "a key comes in a header, never in a cookie"},
    {Peer::kLlamaServer, "--api-prefix", Value::kOne, Fate::kRefused, "put a proxy in front"},
    {Peer::kLlamaServer, "--path", Value::kOne, Fate::kRefused, "the page at / is compiled in"},
    {Peer::kLlamaServer, "--ui, --webui", Value::kNone, Fate::kTaken, "--ui"},
    {Peer::kLlamaServer, "--no-ui, --no-webui", Value::kNone, Fate::kTaken, "--no-ui"},
    {Peer::kLlamaServer, "--ui-config, --webui-config", Value::kOne, Fate::kRefused, "the page at / has no settings"},
    {Peer::kLlamaServer, "--ui-config-file, --webui-config-file", Value::kOne, Fate::kRefused, "the page at / has no settings"},
    {Peer::kLlamaServer, "--ui-mcp-proxy, --webui-mcp-proxy", Value::kNone, Fate::kRefused, "the server runs no tools"},
    {Peer::kLlamaServer, "-ag, --agent", Value::kNone, Fate::kRefused, "the server runs no tools"},
    {Peer::kLlamaServer, "--no-ui-mcp-proxy, --no-webui-mcp-proxy, -no-ag, --no-agent", Value::kNone, Fate::kNothing, "the server runs no tools"},
    {Peer::kLlamaServer, "--tools", Value::kOne, Fate::kRefused, "the server runs no tools"},
    {Peer::kLlamaServer, "--tools-runtime", Value::kOne, Fate::kRefused, "the server runs no tools"},
    {Peer::kLlamaServer, "--mcp-servers-config", Value::kOne, Fate::kRefused, "the server runs no tools"},
    {Peer::kLlamaServer, "--mcp-servers-json", Value::kOne, Fate::kRefused, "the server runs no tools"},
    {Peer::kLlamaServer, "--metrics", Value::kNone, Fate::kNothing, "/metrics is always there"},
    {Peer::kLlamaServer, "--props", Value::kNone, Fate::kRefused, "settings are those of the start"},
    {Peer::kLlamaServer, "--slots", Value::kNone, Fate::kTaken, "--slots-endpoint"},
    {Peer::kLlamaServer, "--no-slots", Value::kNone, Fate::kTaken, "--no-slots-endpoint"},
    {Peer::kLlamaServer, "--embedding, --embeddings", Value::kNone, Fate::kNothing, "a server answers texts and embeddings"},
    {Peer::kLlamaServer, "--rerank, --reranking", Value::kNone, Fate::kNothing, "/v1/rerank is there where the model's file has a head for it"},
    {Peer::kLlamaServer, "--pooling", Value::kOne, Fate::kTaken, "--pooling"},
    {Peer::kLlamaServer, "--embd-normalize", Value::kOne, Fate::kRefused, "`embd_normalize` belongs to a request"},
    {Peer::kLlamaServer, "--media-path", Value::kOne, Fate::kRefused, "models of text alone"},
    {Peer::kLlamaServer, "--models-dir", Value::kOne, Fate::kRefused, "a process has one model"},
    {Peer::kLlamaServer, "--models-preset", Value::kOne, Fate::kRefused, "a process has one model"},
    {Peer::kLlamaServer, "--models-max", Value::kOne, Fate::kRefused, "a process has one model"},
    {Peer::kLlamaServer, "--models-autoload, --no-models-autoload", Value::kNone, Fate::kRefused, "a process has one model"},
    {Peer::kLlamaServer, "--sleep-idle-seconds", Value::kOne, Fate::kRefused, "threads sleep when nobody asks; the weights stay"},
    {Peer::kLlamaServer, "--jinja", Value::kNone, Fate::kTaken, "--jinja"},
    {Peer::kLlamaServer, "--no-jinja", Value::kNone, Fate::kRefused, "templates are always Jinja"},
    {Peer::kLlamaServer, "--chat-template", Value::kOne, Fate::kTaken, "--chat-template"},
    {Peer::kLlamaServer, "--chat-template-file", Value::kOne, Fate::kTaken, "--chat-template"},
    {Peer::kLlamaServer, "-rea, --reasoning", Value::kOne, Fate::kTaken, "--reasoning"},
    {Peer::kLlamaServer, "--reasoning-format", Value::kOne, Fate::kTaken, "--reasoning-format"},
    {Peer::kLlamaServer, "--reasoning-budget", Value::kOne, Fate::kTaken, "--reasoning-budget"},
    {Peer::kLlamaServer, "--reasoning-budget-message", Value::kOne, Fate::kTaken, "--reasoning-budget-message"},
    {Peer::kLlamaServer, "--reasoning-effort", Value::kOne, Fate::kTaken, "--reasoning-effort"},
    {Peer::kLlamaServer, "--chat-template-kwargs", Value::kOne, Fate::kTaken, "--chat-template-kwargs"},
    {Peer::kLlamaServer, "--reasoning-preserve", Value::kNone, Fate::kNothing, "a template gets earlier thoughts, and shows them or not"},
    {Peer::kLlamaServer, "--no-reasoning-preserve", Value::kNone, Fate::kRefused, "a template gets earlier thoughts, and shows them or not"},
    {Peer::kLlamaServer, "--skip-chat-parsing", Value::kNone, Fate::kTaken, "--tool-parser=none"},
    {Peer::kLlamaServer, "--no-skip-chat-parsing", Value::kNone, Fate::kNothing, "answers are read by the template's form"},
    {Peer::kLlamaServer, "--prefill-assistant", Value::kNone, Fate::kNothing, "a last message of the assistant's goes on"},
    {Peer::kLlamaServer, "--no-prefill-assistant", Value::kNone, Fate::kRefused, "a request says it: `continue_final_message`"},
    {Peer::kLlamaServer, "--spm-infill", Value::kNone, Fate::kRefused, "/infill has the order that the vocabulary's model was trained on"},
    {Peer::kLlamaServer, "-mm, --mmproj", Value::kOne, Fate::kRefused, "models of text alone"},
    {Peer::kLlamaServer, "-mmu, --mmproj-url", Value::kOne, Fate::kRefused, "models of text alone"},
    {Peer::kLlamaServer, "--image-min-tokens, --image-max-tokens", Value::kOne, Fate::kRefused, "models of text alone"},
    {Peer::kLlamaServer, "--mtmd-batch-max-tokens", Value::kOne, Fate::kRefused, "models of text alone"},
    {Peer::kLlamaServer, "--video-fps, --video-timestamp-interval, --video-ffmpeg-dir", Value::kOne, Fate::kRefused, "models of text alone"},
    {Peer::kLlamaServer, "-mmdev, --mmproj-device", Value::kOne, Fate::kRefused, "models of text alone"},
    {Peer::kLlamaServer, "--mmproj-auto, --no-mmproj, --no-mmproj-auto, --mmproj-offload, --no-mmproj-offload", Value::kNone, Fate::kNothing, "models of text alone"},
    {Peer::kLlamaServer, "-md, --model-draft, --spec-draft-model", Value::kOne, Fate::kRefused, "there is no speculation"},
    {Peer::kLlamaServer, "--spec-type, --draft, --draft-n, --draft-max, --draft-min, --draft-n-min, --spec-draft-n-max, --spec-draft-n-min", Value::kOne, Fate::kRefused, "there is no speculation"},
    {Peer::kLlamaServer, "-lcs, --lookup-cache-static, -lcd, --lookup-cache-dynamic", Value::kOne, Fate::kRefused, "there is no speculation"},
    {Peer::kLlamaServer, "-ngld, --gpu-layers-draft, --n-gpu-layers-draft, -td, --threads-draft, -cd, --ctx-size-draft, -devd, --device-draft", Value::kOne, Fate::kRefused, "there is no speculation"},
    {Peer::kLlamaServer, "--spec-draft-type-k, -ctkd, --cache-type-k-draft", Value::kOne, Fate::kRefused, "there is no speculation"},
    {Peer::kLlamaServer, "--spec-draft-type-v, -ctvd, --cache-type-v-draft", Value::kOne, Fate::kRefused, "there is no speculation"},
    {Peer::kLlamaServer, "--spec-draft-hf, -hfd, -hfrd, --hf-repo-draft", Value::kOne, Fate::kRefused, "there is no speculation"},
    {Peer::kLlamaServer, "--spec-draft-threads, --spec-draft-threads-batch, -tbd, --threads-batch-draft", Value::kOne, Fate::kRefused, "there is no speculation"},
    {Peer::kLlamaServer, "--spec-draft-cpu-mask, -Cd, --cpu-mask-draft, --spec-draft-cpu-range, -Crd, --cpu-range-draft", Value::kOne, Fate::kRefused, "there is no speculation"},
    {Peer::kLlamaServer, "--spec-draft-cpu-strict, --cpu-strict-draft, --spec-draft-prio, --prio-draft, --spec-draft-poll, --poll-draft", Value::kOne, Fate::kRefused, "there is no speculation"},
    {Peer::kLlamaServer, "--spec-draft-cpu-mask-batch, -Cbd, --cpu-mask-batch-draft, --spec-draft-cpu-strict-batch, --cpu-strict-batch-draft", Value::kOne, Fate::kRefused, "there is no speculation"},
    {Peer::kLlamaServer, "--spec-draft-prio-batch, --prio-batch-draft, --spec-draft-poll-batch, --poll-batch-draft", Value::kOne, Fate::kRefused, "there is no speculation"},
    {Peer::kLlamaServer, "--spec-draft-override-tensor, -otd, --override-tensor-draft", Value::kOne, Fate::kRefused, "there is no speculation"},
    {Peer::kLlamaServer, "--spec-draft-n-cpu-moe, --spec-draft-ncmoe, -ncmoed, --n-cpu-moe-draft", Value::kOne, Fate::kRefused, "there is no speculation"},
    {Peer::kLlamaServer, "--spec-synth-len, --spec-synth-rates", Value::kOne, Fate::kRefused, "there is no speculation"},
    {Peer::kLlamaServer, "--spec-draft-p-split, --draft-p-split, --spec-draft-p-min, --draft-p-min", Value::kOne, Fate::kRefused, "there is no speculation"},
    {Peer::kLlamaServer, "--spec-draft-device, --spec-draft-ngl", Value::kOne, Fate::kRefused, "there is no speculation"},
    {Peer::kLlamaServer, "--spec-ngram-mod-n-min, --spec-ngram-mod-n-max, --spec-ngram-mod-n-match", Value::kOne, Fate::kRefused, "there is no speculation"},
    {Peer::kLlamaServer, "--spec-ngram-simple-size-n, --spec-ngram-simple-size-m, --spec-ngram-simple-min-hits", Value::kOne, Fate::kRefused, "there is no speculation"},
    {Peer::kLlamaServer, "--spec-ngram-map-k-size-n, --spec-ngram-map-k-size-m, --spec-ngram-map-k-min-hits", Value::kOne, Fate::kRefused, "there is no speculation"},
    {Peer::kLlamaServer, "--spec-ngram-map-k4v-size-n, --spec-ngram-map-k4v-size-m, --spec-ngram-map-k4v-min-hits", Value::kOne, Fate::kRefused, "there is no speculation"},
    {Peer::kLlamaServer, "--spec-ngram-size-n, --spec-ngram-size-m, --spec-ngram-min-hits", Value::kOne, Fate::kRefused, "there is no speculation"},
    {Peer::kLlamaServer, "--spec-draft-cpu-moe, -cmoed, --cpu-moe-draft, --spec-default", Value::kNone, Fate::kRefused, "there is no speculation"},
    {Peer::kLlamaServer, "--spec-draft-backend-sampling", Value::kNone, Fate::kRefused, "there is no speculation"},
    {Peer::kLlamaServer, "--no-spec-draft-backend-sampling", Value::kNone, Fate::kNothing, "there is no speculation"},
    {Peer::kLlamaServer, "--embd-gemma-default, --gpt-oss-20b-default, --gpt-oss-120b-default, --vision-gemma-4b-default, --vision-gemma-12b-default", Value::kNone, Fate::kRefused, "Larder opens files alone: download the model, then -m FILE"},
    {Peer::kLlamaServer, "--fim-qwen-1.5b-default, --fim-qwen-3b-default, --fim-qwen-7b-default, --fim-qwen-30b-default, --fim-qwen-7b-spec, --fim-qwen-14b-spec", Value::kNone, Fate::kRefused, "Larder opens files alone: download the model, then -m FILE"},
    {Peer::kLlamaServer, "--usage", Value::kNone, Fate::kRefused, "`larder serve --help` has Larder's options"},
    {Peer::kLlamaServer, "--version", Value::kNone, Fate::kRefused, "`larder --version` says it"},
    {Peer::kLlamaServer, "--completion-bash", Value::kNone, Fate::kRefused, "shells have no completion of Larder's options"},
    {Peer::kVllm, "--model", Value::kOne, Fate::kTaken, "--model"},
    {Peer::kVllm, "--served-model-name", Value::kOne, Fate::kTaken, "--alias"},
    {Peer::kVllm, "--host", Value::kOne, Fate::kTaken, "--host"},
    {Peer::kVllm, "--port", Value::kOne, Fate::kTaken, "--port"},
    {Peer::kVllm, "--api-key", Value::kOne, Fate::kTaken, "--api-key"},
    {Peer::kVllm, "--max-model-len", Value::kOne, Fate::kTaken, "--ctx-size"},
    {Peer::kVllm, "--max-num-seqs", Value::kOne, Fate::kTaken, "--parallel"},
    {Peer::kVllm, "--seed", Value::kOne, Fate::kTaken, "--seed"},
    {Peer::kVllm, "--chat-template", Value::kOne, Fate::kTaken, "--chat-template"},
    {Peer::kVllm, "--tool-call-parser", Value::kOne, Fate::kTaken, "--tool-parser"},
    {Peer::kVllm, "--enable-auto-tool-choice", Value::kNone, Fate::kNothing, "calls are read where the template knows tools"},
    {Peer::kVllm, "--reasoning-parser", Value::kOne, Fate::kNothing, "thoughts are read by the template's form"},
    {Peer::kVllm, "--max-num-batched-tokens", Value::kOne, Fate::kNothing, "the rows of a step follow from --max-stall-ms"},
    {Peer::kVllm, "--long-prefill-token-threshold", Value::kOne, Fate::kNothing, "the rows of a step follow from --max-stall-ms"},
    {Peer::kVllm, "--enable-chunked-prefill, --no-enable-chunked-prefill", Value::kNone, Fate::kNothing, "prompts are cut by --max-stall-ms"},
    {Peer::kVllm, "--enable-prefix-caching", Value::kNone, Fate::kTaken, "--cache-prompt"},
    {Peer::kVllm, "--no-enable-prefix-caching", Value::kNone, Fate::kTaken, "--no-cache-prompt"},
    {Peer::kVllm, "--gpu-memory-utilization", Value::kOne, Fate::kNothing, "there is no GPU: layers lie in the caches of CPUs"},
    {Peer::kVllm, "--dtype", Value::kOne, Fate::kNothing, "weights have the types of the file, the KV cache is INT8"},
    {Peer::kVllm, "--kv-cache-dtype", Value::kOne, Fate::kNothing, "the KV cache is INT8"},
    {Peer::kVllm, "--quantization", Value::kOne, Fate::kNothing, "weights have the types of the file"},
    {Peer::kVllm, "--swap-space", Value::kOne, Fate::kRefused, "--cache-ram and --cache-dir keep what has ended"},
    {Peer::kVllm, "--block-size", Value::kOne, Fate::kNothing, "a chunk has 256 positions"},
    {Peer::kVllm, "--enforce-eager", Value::kNone, Fate::kNothing, "there are no graphs to capture"},
    {Peer::kVllm, "--tensor-parallel-size", Value::kOne, Fate::kRefused, "a cluster's sockets are in its manifest: --manifest"},
    {Peer::kVllm, "--pipeline-parallel-size", Value::kOne, Fate::kRefused, "a cluster's stages are in its manifest: --manifest"},
    {Peer::kVllm, "--data-parallel-size", Value::kOne, Fate::kRefused, "start several servers"},
    {Peer::kVllm, "--distributed-executor-backend", Value::kOne, Fate::kRefused, "a cluster's sockets are in its manifest: --manifest"},
    {Peer::kVllm, "--enable-lora", Value::kNone, Fate::kRefused, "there are no adapters: merge it into the model"},
    {Peer::kVllm, "--lora-modules", Value::kOne, Fate::kRefused, "there are no adapters: merge it into the model"},
    {Peer::kVllm, "--speculative-config", Value::kOne, Fate::kRefused, "there is no speculation"},
    {Peer::kVllm, "--tokenizer, --tokenizer-mode, --hf-config-path", Value::kOne, Fate::kRefused, "the tokenizer is the file's"},
    {Peer::kVllm, "--revision, --download-dir, --load-format", Value::kOne, Fate::kRefused, "Larder opens files alone: download the model, then -m FILE"},
    {Peer::kVllm, "--trust-remote-code", Value::kNone, Fate::kNothing, "a file's template is all that is run"},
    {Peer::kVllm, "--allowed-origins", Value::kOne, Fate::kTaken, "--cors-origin"},
    {Peer::kVllm, "--root-path", Value::kOne, Fate::kRefused, "put a proxy in front"},
    {Peer::kVllm, "--ssl-keyfile, --ssl-certfile, --ssl-ca-certs", Value::kOne, Fate::kRefused, "put a proxy that speaks TLS in front"},
    {Peer::kVllm, "--disable-log-requests, --enable-log-requests, --no-enable-log-requests, --disable-log-stats", Value::kNone, Fate::kNothing, "requests are not logged; /metrics counts them"},
    {Peer::kVllm, "--uvicorn-log-level", Value::kOne, Fate::kNothing, "--log-level says it"},
    {Peer::kVllm, "--generation-config, --override-generation-config", Value::kOne, Fate::kRefused, "defaults of sampling are options: --temp, --top-p ..."},
    {Peer::kVllm, "--limit-mm-per-prompt", Value::kOne, Fate::kRefused, "models of text alone"},
    {Peer::kVllm, "--task, --runner, --convert", Value::kOne, Fate::kNothing, "a server answers texts and embeddings"},
    {Peer::kVllm, "--scheduling-policy", Value::kOne, Fate::kRefused, "--policy says how prompts and answers share a step"},
    {Peer::kVllm, "--rope-scaling, --rope-theta", Value::kOne, Fate::kRefused, "rotations are those of the model's file"},
    // clang-format on
});

// Whether `names` has that one.
bool Has(std::string_view names, std::string_view name) {
  while (!names.empty()) {
    const size_t end = std::min(names.find(", "), names.size());
    if (names.substr(0, end) == name) return true;
    names.remove_prefix(std::min(end + 2, names.size()));
  }
  return false;
}

const PeerFlag* FindFlag(std::string_view name) {
  const auto* found =
      std::ranges::find_if(kFlags, [&](const PeerFlag& flag) { return Has(flag.names, name); });
  return found == kFlags.end() ? nullptr : found;
}

bool IsNumber(std::string_view text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c); });
}

// Larder's --slots has a number, llama-server's has none.
bool IsOwnSlots(const std::string& name, const std::optional<std::string>& value) {
  return name == "--slots" && value && IsNumber(*value);
}

std::string_view NameOf(Peer peer) { return peer == Peer::kVllm ? "vLLM" : "llama-server"; }

}  // namespace

std::span<const PeerFlag> PeerFlags() { return kFlags; }

TranslatedArguments WithoutPeerFlags(const CLI::App& command,
                                     const std::vector<std::string>& arguments) {
  TranslatedArguments out;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") {
      out.arguments.insert(out.arguments.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i),
                           arguments.end());
      break;
    }
    const size_t equals = argument.starts_with("--") ? argument.find('=') : std::string::npos;
    std::string name = argument.substr(0, equals);
    // Both peers take --ctx_size for --ctx-size.
    if (name.starts_with("--")) std::replace(name.begin(), name.end(), '_', '-');
    std::optional<std::string> value, next;
    if (equals != std::string::npos) value = argument.substr(equals + 1);
    if (i + 1 < arguments.size()) next = arguments[i + 1];
    const PeerFlag* flag = name.size() > 1 && name[0] == '-' ? FindFlag(name) : nullptr;
    const CLI::Option* own =
        name.starts_with("--") || name.size() == 2 ? command.get_option_no_throw(name) : nullptr;
    if (name == "--slots" && own != nullptr && !IsOwnSlots(name, value ? value : next))
      own = nullptr;
    if (own != nullptr) {  // with its value, which may look like a flag
      out.arguments.push_back(equals == std::string::npos ? name : name + argument.substr(equals));
      if (!value && next && own->get_expected_max() > 0) {
        out.arguments.push_back(*next);
        ++i;
      }
      continue;
    }
    if (flag == nullptr) {
      out.arguments.push_back(argument);
      continue;
    }
    const std::string larders(flag->text.substr(0, flag->text.find('=')));
    if (flag->fate == Fate::kRefused)
      throw Error("{} ({}'s): {}", name, NameOf(flag->peer), flag->text);
    if (flag->fate == Fate::kTaken && command.get_option_no_throw(larders) == nullptr) {
      out.arguments.push_back(argument);  // another command's
      continue;
    }
    const bool takes = flag->value == Value::kOne ||
                       (flag->value == Value::kMaybe && next && !next->starts_with('-'));
    if (!value && takes && next) {
      value = *next;
      ++i;
    }
    if (flag->fate == Fate::kNothing) {
      out.notes.push_back(
          fmt::format("{} ({}'s) changes nothing: {}", name, NameOf(flag->peer), flag->text));
      continue;
    }
    out.arguments.emplace_back(flag->text);
    if (value && flag->value != Value::kNone) out.arguments.push_back(*value);
  }
  return out;
}

std::string PeerFlagTable(Peer peer) {
  std::string out = "| flag | here |\n|---|---|\n";
  for (const PeerFlag& flag : kFlags) {
    if (flag.peer != peer) continue;
    std::string names;
    for (std::string_view rest = flag.names; !rest.empty();) {
      const size_t end = std::min(rest.find(", "), rest.size());
      names += fmt::format("{}`{}`", names.empty() ? "" : ", ", rest.substr(0, end));
      rest.remove_prefix(std::min(end + 2, rest.size()));
    }
    const std::string_view fate = flag.fate == Fate::kNothing ? "changes nothing: " : "refused: ";
    out += fmt::format("| {} | {} |\n", names,
                       flag.fate == Fate::kTaken ? fmt::format("`{}`", flag.text)
                                                 : fmt::format("{}{}", fate, flag.text));
  }
  return out;
}

}  // namespace larder::node::options

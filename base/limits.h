#pragma once
// Every bound of the system, with its reason. A queue, count or length that is not bounded here
// is a defect. Names end in their unit where they have one.
#include <cstddef>
#include <cstdint>

namespace copse::limits {

// --- the engine ---------------------------------------------------------------------------------
inline constexpr int world_size = 8;        // ranks of one tensor-parallel group
inline constexpr int reduction_leaves = 8;  // partial sums of a split sum: see 0002 in decisions
inline constexpr int batch_sequences = 32;  // slots: sequences that one step can hold
inline constexpr int tree_nodes = 512;      // largest draft tree, root not counted
inline constexpr int tree_top_k = 64;       // candidates per draft position
inline constexpr int draft_block = 32;      // longest drafter block, bonus token included
inline constexpr int step_rows = 1024;      // rows of one forward pass: prefill or tree nodes
inline constexpr int prefill_chunk_rows = 256;  // default chunk: decode waits at most this long
inline constexpr int page_tokens = 64;          // tokens of one KV page
inline constexpr int pages = 1 << 20;           // page ids of one pool
inline constexpr int sequence_pages = 4096;     // 262144 tokens: the longest context of Kimi-K2
inline constexpr int sequence_tokens = sequence_pages * page_tokens;
inline constexpr int plan_entry_pages = 64;  // new pages that one plan entry can bring
inline constexpr int plans_in_flight = 2;    // the running one and the one queued behind it
inline constexpr int end_token_ids = 16;     // end-of-text and stop token ids of one request
inline constexpr int vocabulary = 1 << 20;
inline constexpr int layers = 256;
inline constexpr int experts = 1024;
inline constexpr int experts_per_token = 32;
inline constexpr int target_feature_layers = 16;  // target layers that the drafter reads
inline constexpr int worker_threads = 256;

// --- requests -----------------------------------------------------------------------------------
inline constexpr int queued_requests = 256;  // admission queue: full means 429
inline constexpr int prepare_threads = 2;  // of a gateway: one huge prompt does not stop the others
inline constexpr int queued_prepares = 256;  // bodies that wait for them: full means 429
inline constexpr std::size_t queued_prepare_bytes = 64u << 20;  // of these: sixteen of the largest
inline constexpr int stream_outbox_events = 256;  // full: the sequence is not scheduled
inline constexpr int stop_strings = 4;            // OpenAI's bound
inline constexpr int stop_string_bytes = 256;
inline constexpr int choices = 16;  // n
inline constexpr std::size_t prompt_bytes = 4u << 20;
inline constexpr std::size_t chat_body_bytes = 4u << 20;
inline constexpr std::size_t other_body_bytes = 16u << 10;
inline constexpr std::size_t http_header_bytes = 8u << 10;
inline constexpr int http_connections = 4096;
inline constexpr int json_depth = 16;
inline constexpr std::size_t json_string_bytes = 64u << 10;  // message contents excepted
inline constexpr int messages_per_chat = 1024;
inline constexpr std::size_t template_steps = 1u << 20;  // work of one template rendering
inline constexpr std::size_t template_output_bytes = 8u << 20;
inline constexpr int template_depth = 64;
inline constexpr std::size_t template_bytes = 1u << 20;  // source of a chat template
inline constexpr std::size_t template_spans = 1u << 18;  // changes of origin in one prompt

// --- the wire -----------------------------------------------------------------------------------
inline constexpr std::size_t frame_header_bytes = 40;
inline constexpr std::size_t frame_body_bytes = 8u << 20;  // ZMQ_MAXMSGSIZE
inline constexpr int message_depth = 4;
inline constexpr std::size_t message_string_bytes = 64u << 10;
inline constexpr int link_high_water_mark = 64;
inline constexpr int gateways = 16;
inline constexpr int error_text_bytes = 1024;
inline constexpr int model_name_bytes = 256;

// --- files --------------------------------------------------------------------------------------
inline constexpr std::size_t safetensors_header_bytes = 100u << 20;
inline constexpr int safetensors_tensors = 1 << 20;  // Kimi-K2 has hundreds of thousands
inline constexpr int safetensors_rank = 8;
inline constexpr int weight_shards = 4096;
inline constexpr std::size_t config_bytes = 4u << 20;
inline constexpr std::size_t tokenizer_bytes = 64u << 20;
inline constexpr int tokenizer_merges = 1 << 20;
inline constexpr int added_tokens = 1 << 16;
inline constexpr std::size_t added_token_bytes = 256;  // looked for at every byte of a text
inline constexpr std::size_t tokenizer_pattern_bytes = 16u << 10;
inline constexpr int tokenizer_splits = 16;                         // patterns of one pre-tokenizer
inline constexpr std::uint32_t tokenizer_match_steps = 20'000'000;  // spaces of prompt_bytes fit

// --- time, milliseconds -------------------------------------------------------------------------
inline constexpr std::int64_t heartbeat_ms = 500;
inline constexpr std::int64_t heartbeat_timeout_ms = 2000;
inline constexpr std::int64_t handshake_ms = 2000;
inline constexpr std::int64_t step_soft_ms = 2000;  // log who is late
inline constexpr std::int64_t step_hard_ms = 5000;  // restart the group
inline constexpr std::int64_t prefill_hard_ms = 30000;
inline constexpr std::int64_t load_hard_ms = 600000;
inline constexpr std::int64_t restart_window_ms = 600000;
inline constexpr std::int64_t recovery_patience_ms = 10000;  // requests wait for a restart so long
inline constexpr int restarts_in_window = 3;  // the third failure in ten minutes is the end
inline constexpr std::int64_t drain_ms = 30000;
inline constexpr std::int64_t http_header_ms = 5000;
inline constexpr std::int64_t http_body_ms = 15000;
inline constexpr std::int64_t http_idle_ms = 60000;  // a kept connection between two requests
inline constexpr std::int64_t half_close_ms = 500;   // then a client that sends no more is asked
inline constexpr std::int64_t slow_client_ms = 30000;
inline constexpr std::int64_t sse_keep_alive_ms = 15000;

static_assert(reduction_leaves % world_size == 0, "every rank owns a whole subtree of the sum");
static_assert(tree_nodes + 1 <= step_rows, "the largest tree fits one forward pass");
static_assert(prefill_chunk_rows <= tree_nodes, "a prefill chunk uses the tree's scratch rows");
static_assert(plan_entry_pages * page_tokens >= tree_nodes + 2 * draft_block);
static_assert(chat_body_bytes <= queued_prepare_bytes, "the largest body can wait");
static_assert(step_soft_ms < step_hard_ms && heartbeat_ms < heartbeat_timeout_ms);

}  // namespace copse::limits

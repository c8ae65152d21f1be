#include "tools/cli/device_options.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "model/cuda/plugin.h"

namespace copse::cli {
namespace {

constexpr int kErrorBytes = 1024;

// A driver that was started does not survive the fork of a rank, so a child asks.
Status ask_in_a_child(const CudaFunction<CudaCheckFunction>& check, int device) {
  int ends[2];
  if (pipe(ends) != 0) return Error{ErrorCode::io, "--device", "no pipe"};
  const pid_t pid = fork();
  if (pid == 0) {
    Status status;
    check(device, &status);
    const std::string& why = status.ok() ? std::string() : status.error().message;
    const bool told = write(ends[1], why.data(), why.size()) >= 0;
    _exit(status.ok() && told ? 0 : 1);
  }
  close(ends[1]);
  char text[kErrorBytes];
  const ssize_t length = pid > 0 ? read(ends[0], text, sizeof text) : -1;
  close(ends[0]);
  int raw = 1;
  if (pid > 0) waitpid(pid, &raw, 0);
  if (raw == 0) return {};
  const std::string why(text, static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
  return Error{ErrorCode::unavailable, "--device", why.empty() ? "cannot be asked for" : why};
}

}  // namespace

void add_device_options(CLI::App& app, DeviceOptions& o) {
  app.add_option("--device", o.device, "cpu or cuda")->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--dtype", o.dtype, "With cuda: bfloat16, or float32 for comparisons")
      ->check(CLI::IsMember({"bfloat16", "float32"}));
  app.add_option("--verify-kernel", o.verify_kernel,
                 "With cuda: fast; or portable or naive, to compare")
      ->check(CLI::IsMember({"fast", "portable", "naive"}));
  app.add_flag("--share-gpu", o.share_gpu,
               "With cuda: all ranks on one GPU, meeting over sockets; for tests");
}

void add_engine_device_options(CLI::App& app, DeviceOptions& o) {
  app.add_option("--mem-fraction,--gpu-memory-utilization", o.mem_fraction,
                 "With cuda: part of the device's memory that may be used")
      ->check(CLI::Range(0.01, 0.98));
  app.add_flag("--enforce-eager,--disable-cuda-graph", o.eager,
               "With cuda: launch kernels one by one, to compare");
}

void add_load_format(CLI::App& app, DeviceOptions& o) {
  app.add_option("--load-format", o.load_format,
                 "auto; or, with cuda, dummy: random weights, to measure without a checkpoint")
      ->check(CLI::IsMember({"auto", "dummy"}));
}

Status check_device(const DeviceOptions& o, int ranks) {
  if (o.load_format == "dummy" && o.device != "cuda") {
    return Error{ErrorCode::invalid_argument, "--load-format", "dummy needs --device cuda"};
  }
  if (o.device != "cuda") return {};
  COPSE_TRY(const auto check, cuda_function<CudaCheckFunction>("copse_cuda_check"));
  return ask_in_a_child(check, o.share_gpu ? 0 : ranks - 1);
}

std::vector<std::string> device_arguments(const DeviceOptions& o) {
  if (o.device != "cuda") return {};
  std::vector<std::string> arguments{"--device",        o.device,
                                     "--dtype",         o.dtype,
                                     "--load-format",   o.load_format,
                                     "--verify-kernel", o.verify_kernel,
                                     "--mem-fraction",  std::to_string(o.mem_fraction)};
  if (o.eager) arguments.push_back("--enforce-eager");
  if (o.share_gpu) arguments.push_back("--share-gpu");
  return arguments;
}

}  // namespace copse::cli

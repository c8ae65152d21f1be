#include "tools/cli/machine.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <memory>

namespace copse::cli {
namespace {

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

int cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

Json gpu_lines() {
  Json gpus = Json::array();
  const auto close = [](FILE* pipe) { pclose(pipe); };
  const std::unique_ptr<FILE, decltype(close)> pipe(
      popen("nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader "
            "2>/dev/null",
            "r"),
      close);
  char line[256];
  while (pipe != nullptr && std::fgets(line, sizeof line, pipe.get()) != nullptr) {
    std::string text = line;
    while (!text.empty() && text.back() == '\n') text.pop_back();
    if (!text.empty()) gpus.push_back(text);
  }
  if (gpus.empty()) gpus.push_back("unknown");
  return gpus;
}

}  // namespace

Json machine_facts(bool gpu) {
  utsname system{};
  uname(&system);
  const double pages = static_cast<double>(sysconf(_SC_PHYS_PAGES));
  Json facts = {{"cpu", cpu_name()},
                {"cores", cores()},
                {"memory_gb", pages * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1e9},
                {"system", std::string(system.sysname) + " " + system.release}};
  if (!gpu) return facts;
  facts["gpus"] = gpu_lines();
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  facts["CUDA_VISIBLE_DEVICES"] = visible == nullptr ? Json() : Json(visible);
  return facts;
}

std::string date_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

}  // namespace copse::cli

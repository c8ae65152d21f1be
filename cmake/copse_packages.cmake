# Every package here is installed by scripts/setup.sh from Debian 12. Headers of packages are
# SYSTEM, so that our warnings judge our own code only.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(GTest REQUIRED)
find_package(benchmark REQUIRED)
find_package(spdlog REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(Boost 1.74 REQUIRED)
# 4.3.4 has the fixes of CVE-2019-13132, CVE-2019-6250 and CVE-2020-15166: older is refused.
pkg_check_modules(ZMQ REQUIRED IMPORTED_TARGET libzmq>=4.3.4)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-cpp)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
find_package(prometheus-cpp CONFIG COMPONENTS core QUIET)

/* The machine that was measured on; see bench.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "bench.h"
#include "numbers.h"

#ifdef __clang__
#define COMPILER /* its version says it */
#else
#define COMPILER "gcc "
#endif

/* "model name : AMD EPYC ..." of Linux; "" where there is none. */
static void cpu_name(char *out, size_t size)
{
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[512];

    out[0] = '\0';
    while (file && !out[0] && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon || colon[1] != ' ')
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(out, size, "%s", colon + 2);
    }
    if (file)
        fclose(file);
}

bool bench_cpu_has(const char *feature)
{
    for (size_t i = 0; octet_cpu_feature(i); i++)
        if (strcmp(octet_cpu_feature(i), feature) == 0)
            return true;
    return false;
}

/* "32768K" of Linux' files; virtual machines tell the C library the sum over a host. 0: no such
 * file. */
static long linux_cache_bytes(int level)
{
    char path[64], unit = ' ';
    long size = 0;

    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size",
             level == 1 ? 0 : level);
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%9ld%c", &size, &unit) < 1)
        size = 0;
    if (file)
        fclose(file);
    return unit == 'K' ? size << 10 : unit == 'M' ? size << 20 : size;
}

long bench_cache_bytes(int level)
{
    static const int names[] = {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE,
                                _SC_LEVEL3_CACHE_SIZE};
    long bytes = linux_cache_bytes(level);

    if (bytes <= 0)
        bytes = sysconf(names[level - 1]);
    return bytes > 0 ? bytes : 0;
}

static void member(struct output *out, const char *name, double value)
{
    output_printf(out, ",\n      \"%s\": ", name);
    if (isnan(value))
        output_text(out, "null");
    else
        json_number(out, value);
}

static void print_json_peaks(struct output *out, const struct bench *bench)
{
    const struct bench_peaks *p = &bench->peaks;

    output_printf(out, ",\n    \"peaks\": {\n      \"threads_reading\": %d", (int)bench->threads);
    member(out, "avx2_fma_gflops", p->avx2_gflops);
    member(out, "avx512_fma_gflops", p->avx512_gflops);
    member(out, "avx512bf16_dot_gflops", p->bf16_gflops);
    member(out, "read_gbytes_per_s", p->read_gbytes_per_s);
    member(out, "memcpy_gbytes_per_s", p->memcpy_gbytes_per_s);
    output_text(out, "\n    }");
}

void bench_print_machine(const struct bench *bench)
{
    struct output *out = bench->session->out;
    struct utsname system = {.release = ""};
    char name[256];
    double load = NAN;

    cpu_name(name, sizeof name);
    uname(&system);
    if (getloadavg(&load, 1) != 1)
        load = NAN;
    output_text(out, "{\n  \"machine\": {\n    \"cpu\": ");
    json_text(out, name);
    output_printf(out, ",\n    \"cpus\": %ld,\n    \"cpu_features\": [",
                  sysconf(_SC_NPROCESSORS_ONLN));
    for (size_t i = 0; octet_cpu_feature(i); i++)
        output_printf(out, "%s\"%s\"", i ? ", " : "", octet_cpu_feature(i));
    output_printf(out, "],\n    \"cache_bytes\": [%ld, %ld, %ld],\n    \"system\": ",
                  bench_cache_bytes(1), bench_cache_bytes(2), bench_cache_bytes(3));
    json_text(out,
              octet_arena_format(bench->session->arena, "%s %s", system.sysname, system.release));
    output_text(out, ",\n    \"compiler\": ");
    json_text(out, COMPILER __VERSION__);
    output_text(out, ",\n    \"openblas\": ");
    if (bench->peer_count)
        json_text(out, bench->peers[0].version);
    else
        output_text(out, "null");
    if (bench->device) {
        output_text(out, ",\n    \"device\": ");
        json_text(out, bench->device);
        output_text(out, ",\n    \"driver\": ");
        json_text(out, bench->driver);
    }
    output_text(out, ",\n    \"load_average\": ");
    if (isnan(load))
        output_text(out, "null");
    else
        json_number(out, load);
    if (!isnan(bench->peaks.read_gbytes_per_s))
        print_json_peaks(out, bench);
    output_printf(out, ",\n    \"version\": \"%s\",\n    \"git_commit\": \"%s\"\n  }",
                  octet_version(), octet_git_commit());
}

static void put_peak(struct output *out, const char *what, double value, const char *unit)
{
    if (!isnan(value))
        output_printf(out, "%s %.*f %s", what, value < 1000 ? 1 : 0, value, unit);
}

void bench_print_peaks(const struct bench *bench)
{
    const struct bench_peaks *p = &bench->peaks;
    struct output *out = bench->session->out;

    if (isnan(p->read_gbytes_per_s))
        return;
    output_text(out, "peaks of one thread, measured now:");
    put_peak(out, " AVX2", p->avx2_gflops, "GFLOP/s,");
    put_peak(out, " AVX-512", p->avx512_gflops, "GFLOP/s,");
    put_peak(out, " VDPBF16PS", p->bf16_gflops, "GFLOP/s,");
    put_peak(out, " memcpy", p->memcpy_gbytes_per_s, "GB/s,");
    if (bench->threads > 1)
        output_printf(out, " reading with %d threads", (int)bench->threads);
    put_peak(out, bench->threads > 1 ? "" : " reading", p->read_gbytes_per_s, "GB/s\n");
}

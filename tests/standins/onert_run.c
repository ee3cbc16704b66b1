/* A stand-in for onert_run of Samsung ONE, for tests only.
 *
 * The real program is in no package that these tests can install. This one keeps to the part of its interface that
 * gnomon uses (the options, the printed lines, the raw files, the exit status), as the published source tells it, and
 * runs the model for real, by the C API in the libonert.so that is found on LD_LIBRARY_PATH. It shares no line with the
 * original. STANDIN_FAULT makes it misbehave: "crash", "hang", "status", "silent" (no line a run), "wrong" (outputs). */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    int dtype;
    int32_t rank;
    int32_t dims[6];
} tensor_info;

typedef int (*function)();
static void *library;

static function found(const char *name) {
    void *symbol = dlsym(library, name);
    if (!symbol) {
        fprintf(stderr, "%s\n", dlerror());
        exit(127);
    }
    return (function)symbol;
}

static void must(int status) {
    if (status) exit(-1);
}

static uint64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

static size_t bytes_of(const tensor_info *info) {
    static const size_t sizes[] = {4, 4, 1, 1, 1, 8, 1, 2, 2};
    size_t total = info->dtype >= 0 && info->dtype < 9 ? sizes[info->dtype] : 4;
    for (int32_t i = 0; i < info->rank; i++) total *= (size_t)info->dims[i];
    return total;
}

static void load(const char *prefix, unsigned number, void *into, size_t size) {
    char path[4096];
    struct stat seen;
    snprintf(path, sizeof path, "%s.%u", prefix, number);
    if (stat(path, &seen) || (size_t)seen.st_size != size) {
        fprintf(stderr, "Input %u size does not match: %zu expected, but %zu provided.\n", number, size,
                (size_t)seen.st_size);
        exit(-1);
    }
    FILE *file = fopen(path, "rb");
    if (!file || fread(into, 1, size, file) != size) exit(-1);
    fclose(file);
}

static void dump(const char *prefix, unsigned number, const void *from, size_t size) {
    char path[4096];
    snprintf(path, sizeof path, "%s.%u", prefix, number);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(from, 1, size, file) != size) exit(-1);
    fclose(file);
    printf("%s is generated.\n", path);
}

static long peak_kb(void) {
    char line[256];
    long peak = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "VmHWM: %ld", &peak) == 1) break;
    if (file) fclose(file);
    return peak;
}

static void usage(void) {
    printf("Usage: ./onert_run [-h] [--version] [--dump:raw DUMP:RAW] [--load:raw LOAD:RAW] [--num_runs NUM_RUNS] "
           "[--warmup_runs WARMUP_RUNS] [--mem_poll] [--verbose_level VERBOSE_LEVEL] path\n");
}

int main(int argc, char **argv) {
    const char *path = NULL, *in = NULL, *out = NULL, *fault = getenv("STANDIN_FAULT");
    int runs = 1, warm = 0, verbose = 0, memory = 0, version = 0;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        int takes = !strcmp(word, "-r") || !strcmp(word, "--num_runs") || !strcmp(word, "-w") ||
                    !strcmp(word, "--warmup_runs") || !strcmp(word, "-v") || !strcmp(word, "--verbose_level") ||
                    !strcmp(word, "--load:raw") || !strcmp(word, "--dump:raw");
        if (takes && i + 1 == argc) {
            fprintf(stderr, "Missing value of %s\n", word);
            return 1;
        }
        if (!strcmp(word, "-h") || !strcmp(word, "--help")) return usage(), 0;
        if (!strcmp(word, "--version")) version = 1;
        else if (!strcmp(word, "-m") || !strcmp(word, "--mem_poll")) memory = 1;
        else if (!strcmp(word, "--load:raw")) in = argv[++i];
        else if (!strcmp(word, "--dump:raw")) out = argv[++i];
        else if (takes && (word[1] == 'r' || word[2] == 'n')) runs = atoi(argv[++i]);
        else if (takes && (word[1] == 'w' || word[2] == 'w')) warm = atoi(argv[++i]);
        else if (takes) verbose = atoi(argv[++i]);
        else if (word[0] == '-' || path) {
            fprintf(stderr, "Unknown argument %s\n", word);
            return 1;
        } else path = word;
    }
    library = dlopen("libonert.so", RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        fprintf(stderr, "onert_run: error while loading shared libraries: %s\n", dlerror());
        return 127;
    }
    if (version) {
        uint32_t number = 0;
        must(found("nnfw_query_info_u32")(NULL, 0, &number));
        printf("onert_run (nnfw runtime: v%u.%u.%u)\n", number >> 24, (number & 0xff00) >> 8, number & 0xff);
        return 0;
    }
    struct stat seen;
    if (!path || stat(path, &seen)) {
        fprintf(stderr, "Cannot find: %s\n", path ? path : "");
        return 1;
    }
    printf("%s Filename %s\n", S_ISDIR(seen.st_mode) ? "Package" : "Model", path);
    if (fault && !strcmp(fault, "crash")) raise(SIGSEGV);
    if (fault && !strcmp(fault, "hang")) sleep(3600);
    if (fault && !strcmp(fault, "status")) return fprintf(stderr, "out of luck\n"), 7;
    if (memory && !warm) warm = 1;

    void *session = NULL;
    must(found("nnfw_create_session")(&session));
    uint64_t begin = now_us();
    must(found("nnfw_load_model_from_file")(session, path));
    double load_ms = (double)(now_us() - begin) / 1e3;
    if (getenv("BACKENDS")) must(found("nnfw_set_available_backends")(session, getenv("BACKENDS")));
    begin = now_us();
    must(found("nnfw_prepare")(session));
    double prepare_ms = (double)(now_us() - begin) / 1e3;

    uint32_t counts[2] = {0, 0};
    void **buffers[2];
    size_t *sizes[2];
    static const char *const kinds[2] = {"input", "output"};
    for (int side = 0; side < 2; side++) {
        char name[64];
        snprintf(name, sizeof name, "nnfw_%s_size", kinds[side]);
        must(found(name)(session, &counts[side]));
        buffers[side] = calloc(counts[side], sizeof(void *));
        sizes[side] = calloc(counts[side], sizeof(size_t));
        for (uint32_t k = 0; k < counts[side]; k++) {
            tensor_info info;
            snprintf(name, sizeof name, "nnfw_%s_tensorinfo", kinds[side]);
            must(found(name)(session, k, &info));
            sizes[side][k] = bytes_of(&info);
            buffers[side][k] = calloc(1, sizes[side][k]);
            snprintf(name, sizeof name, "nnfw_set_%s", kinds[side]);
            must(found(name)(session, k, info.dtype, buffers[side][k], sizes[side][k]));
        }
    }
    for (uint32_t k = 0; in && k < counts[0]; k++) load(in, k, buffers[0][k], sizes[0][k]);

    function run = found("nnfw_run");
    double sum = 0, logs = 0, most = 0, least = INFINITY;
    for (int n = 0; n < warm + runs; n++) {
        begin = now_us();
        must(run(session));
        double took_ms = (double)(now_us() - begin) / 1e3;
        if (verbose && !(fault && !strcmp(fault, "silent")))
            printf("... %s %d takes %g ms\n", n < warm ? "warmup" : "run", n < warm ? n + 1 : n - warm + 1, took_ms);
        fflush(stdout);
        if (n < warm) continue;
        sum += took_ms;
        logs += log(took_ms);
        most = fmax(most, took_ms);
        least = fmin(least, took_ms);
    }
    for (uint32_t k = 0; out && k < counts[1]; k++) {
        if (fault && !strcmp(fault, "wrong")) memset(buffers[1][k], 0x3f, sizes[1][k]);
        dump(out, k, buffers[1][k], sizes[1][k]);
    }
    must(found("nnfw_close_session")(session));
    static const char rule[] = "===================================";
    printf("%s\nMODEL_LOAD   takes %.3f ms\nPREPARE      takes %.3f ms\nEXECUTE      takes %.3f ms\n", rule, load_ms,
           prepare_ms, sum / runs);
    printf("- MEAN     :  %.3f ms\n- MAX      :  %.3f ms\n- MIN      :  %.3f ms\n- GEOMEAN  :  %.3f ms\n%s\n", sum / runs,
           most, least, exp(logs / runs), rule);
    if (memory) printf("Used Peak Memory : %ld kb\n- HWM after run  : %ld kb\n- HWM before init: 0 kb\n%s\n", peak_kb(),
                       peak_kb(), rule);
    return 0;
}

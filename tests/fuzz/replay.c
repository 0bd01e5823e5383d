/* Runs a fuzz target on every file of a folder, for compilers without libFuzzer and for CTest. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static int replay(const char *folder, const char *name)
{
    char path[4096];
    uint8_t *bytes = NULL;
    long size = -1;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (file && fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) >= 0) {
        rewind(file);
        bytes = malloc((size_t)size + 1);
    }
    /* A piece of exactly this size, so that a sanitizer sees a read beyond it. */
    uint8_t *exact = bytes ? realloc(bytes, size ? (size_t)size : 1) : NULL;
    int good = exact && fread(exact, 1, (size_t)size, file) == (size_t)size;
    if (good)
        LLVMFuzzerTestOneInput(exact, (size_t)size);
    else
        fprintf(stderr, "cannot read %s\n", path);
    free(exact);
    if (file)
        fclose(file);
    return good;
}

int main(int argc, char **argv)
{
    struct dirent **entries = NULL;
    int count = argc == 2 ? scandir(argv[1], &entries, NULL, alphasort) : -1, ran = 0, good = 1;

    if (count < 0) {
        fprintf(stderr, "usage: %s FOLDER (of inputs)\n", argv[0]);
        return 2;
    }
    for (int i = 0; i < count; i++) {
        if (entries[i]->d_name[0] != '.') {
            good &= replay(argv[1], entries[i]->d_name);
            ran++;
        }
        free(entries[i]);
    }
    free(entries);
    printf("%d inputs\n", ran);
    return good && ran ? 0 : 1;
}

/* See daemon.h. */
#include "daemon.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ARGUMENTS_MAX = 32 };

static void run_child(const char *program, const char *const *arguments, const char *log_path,
                      int out)
{
    char *argv[ARGUMENTS_MAX + 2] = {(char *)program};

    for (int i = 0; i < ARGUMENTS_MAX && arguments[i]; i++)
        argv[i + 1] = (char *)arguments[i];
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that dies leaves no daemon behind */
    dup2(out, STDOUT_FILENO);
    if (log_path) {
        int log = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        dup2(log, STDERR_FILENO);
    }
    execv(program, argv);
    perror(program);
    _exit(127);
}

static int decode(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

bool daemon_start(struct daemon *daemon, const char *program, const char *const *arguments,
                  const char *log_path, int *status)
{
    char line[512] = "";
    int ends[2], raw;

    daemon->pid = 0;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    daemon->pid = fork();
    if (daemon->pid == 0)
        run_child(program, arguments, log_path, ends[1]);
    close(ends[1]);
    if (daemon->pid < 0) {
        close(ends[0]);
        return false;
    }
    FILE *out = fdopen(ends[0], "r");
    bool started = fgets(line, sizeof line, out) != NULL;
    fclose(out);
    char *address = strstr(line, "listening on ");
    if (started && address) {
        address += strlen("listening on ");
        address[strcspn(address, "\n")] = 0;
        snprintf(daemon->address, sizeof daemon->address, "%s", address);
        return true;
    }
    waitpid(daemon->pid, &raw, 0);
    daemon->pid = 0;
    if (status)
        *status = decode(raw);
    return false;
}

void daemon_signal(const struct daemon *daemon, int signal)
{
    if (daemon->pid > 0) /* kill(0) and kill(-1) would reach others */
        kill(daemon->pid, signal);
}

int daemon_wait(struct daemon *daemon, int seconds)
{
    int raw;
    pid_t pid = daemon->pid;

    daemon->pid = 0;
    for (int i = 0; pid > 0 && i < seconds * 100; i++) {
        if (waitpid(pid, &raw, WNOHANG) == pid)
            return decode(raw);
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, &raw, 0);
    }
    return -1;
}

static bool read_proc(const struct daemon *daemon, const char *name, char *buffer, size_t size)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/%s", (int)daemon->pid, name);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    size_t length = fread(buffer, 1, size - 1, file);
    buffer[length] = 0;
    fclose(file);
    return length > 0;
}

long daemon_rss_kib(const struct daemon *daemon)
{
    char text[256];
    long size, resident;

    if (!read_proc(daemon, "statm", text, sizeof text) ||
        sscanf(text, "%ld %ld", &size, &resident) != 2)
        return -1;
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

long daemon_cpu_ms(const struct daemon *daemon)
{
    char text[1024];
    unsigned long user, system;

    if (!read_proc(daemon, "stat", text, sizeof text) || !strrchr(text, ')') ||
        sscanf(strrchr(text, ')') + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
               &system) != 2)
        return -1;
    return (long)((user + system) * 1000 / (unsigned long)sysconf(_SC_CLK_TCK));
}

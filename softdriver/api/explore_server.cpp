#include "api/explore_server.h"

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <fstream>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace soft {
namespace {

// The pipe for the program's output, as `python -m cudadrv explore` sends it.
struct Pipe {
    uint64_t device = 0, inode = 0;

    bool is(const struct stat &file) const {
        return S_ISFIFO(file.st_mode) && file.st_dev == device && file.st_ino == inode;
    }
};

// What every run inherits: descriptors of the output, and files at the places where they are read.
struct Inherited {
    std::vector<int> outputs;
    std::vector<std::pair<int, off_t>> files;
};

template <class Each> void for_entries(const char *folder, const Each &each) {
    DIR *entries = opendir(folder);
    if (!entries)
        return;
    while (const dirent *entry = readdir(entries))
        if (entry->d_name[0] != '.' && std::atoi(entry->d_name) != dirfd(entries))
            each(std::atoi(entry->d_name));
    closedir(entries);
}

int threads() {
    int count = 0;
    for_entries("/proc/self/task", [&](int) { count++; });
    return count;
}

// Returns the function that forks and calls no handlers of pthread_atfork, which make libraries
// refuse to work in a child. Returns null if the C library is older than that function.
pid_t (*plain_fork())() { return reinterpret_cast<pid_t (*)()>(dlsym(RTLD_DEFAULT, "_Fork")); }

int waited_for(pid_t child) {
    int status = -1;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
}

// Returns whether a child has all threads of this process. Libraries that allow forks, such as
// OpenBLAS, end their threads before a fork, also before one of a child that does nothing, and
// start them again when they are needed.
bool has_one_thread() {
    if (threads() == 1)
        return true;
    pid_t child = fork();
    if (!child)
        _exit(0);
    if (child < 0)
        return false;
    waited_for(child);
    return threads() == 1;
}

// Returns whether the process has what forked children do not inherit: children, timers, or the
// exit statuses of their own children.
bool has_more_than_children_inherit() {
    siginfo_t info;
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD)
        return true;
    struct sigaction action;
    sigaction(SIGCHLD, nullptr, &action);
    if (action.sa_handler != SIG_DFL)
        return true;
    for (int which : {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF}) {
        itimerval timer;
        getitimer(static_cast<__itimer_which>(which), &timer);
        if (timer.it_value.tv_sec || timer.it_value.tv_usec)
            return true;
    }
    return false;
}

// Returns whether the children would share memory that they can write.
bool shares_memory() {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        size_t rights = line.find(' ') + 1;
        if (line[rights + 1] == 'w' && line[rights + 3] == 's')
            return true;
    }
    return !maps.eof();
}

// Returns whether children can use the open files independently of each other.
bool inherit_files(const Pipe &output, int server, Inherited &inherited) {
    bool can = true;
    for_entries("/proc/self/fd", [&](int number) {
        struct stat file;
        if (number == server || fstat(number, &file))
            return;
        if (output.is(file))
            inherited.outputs.push_back(number);
        else if (S_ISREG(file.st_mode) && (fcntl(number, F_GETFL) & O_ACCMODE) == O_RDONLY)
            inherited.files.emplace_back(number, lseek(number, 0, SEEK_CUR));
        else if (!S_ISCHR(file.st_mode) && !S_ISDIR(file.st_mode))
            can = false;
    });
    return can;
}

// Returns a connection, or -1 if nobody listens.
int connected(const std::string &path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path)
        return -1;
    path.copy(address.sun_path, path.size());
    int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (server >= 0 && connect(server, reinterpret_cast<sockaddr *>(&address), sizeof address)) {
        close(server);
        return -1;
    }
    return server;
}

// Waits for the next run. Returns the pipe for its output, or -1 if there is none.
int next_run(int server) {
    char byte;
    iovec content{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr message{};
    message.msg_iov = &content;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    if (recvmsg(server, &message, MSG_CMSG_CLOEXEC) != 1)
        return -1;
    const cmsghdr *header = CMSG_FIRSTHDR(&message);
    return header ? *reinterpret_cast<const int *>(CMSG_DATA(header)) : -1;
}

void begin_run(const Inherited &inherited, int output, pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); // who ends the server ends the run
    if (getppid() != parent)
        _exit(EXIT_FAILURE);
    for (int number : inherited.outputs)
        dup3(output, number, fcntl(number, F_GETFD) & FD_CLOEXEC ? O_CLOEXEC : 0);
    close(output);
}

} // namespace

void serve_runs(const std::string &folder) {
    if (folder.empty())
        return;
    auto fork_run = plain_fork();
    int server = fork_run ? connected(folder + "/server") : -1;
    if (server < 0)
        return;
    Pipe output;
    Inherited inherited;
    bool serves = recv(server, &output, sizeof output, MSG_WAITALL) == sizeof output &&
                  !has_more_than_children_inherit() && has_one_thread() && !shares_memory() &&
                  inherit_files(output, server, inherited) && send(server, "r", 1, 0) == 1;
    if (!serves) {
        close(server);
        return;
    }
    // The program's signals are blocked here: one that arrives now must not reach all later runs.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t parent = getpid();
    for (int pipe; (pipe = next_run(server)) >= 0;) {
        for (const auto &[file, offset] : inherited.files)
            lseek(file, offset, SEEK_SET);
        pid_t child = fork_run();
        if (!child) {
            begin_run(inherited, pipe, parent);
            close(server);
            pthread_sigmask(SIG_SETMASK, &before, nullptr);
            return;
        }
        close(pipe);
        int status = child < 0 ? -1 : waited_for(child);
        if (send(server, &status, sizeof status, MSG_NOSIGNAL) != sizeof status)
            break;
    }
    _exit(EXIT_SUCCESS);
}

} // namespace soft

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ways out of a plan, one at a time: attack NAME, run as a command. Exit 0: it worked; 1: it was
 * refused; 77: this kernel does not have what it takes. escape.py has the world around it, in the
 * environment: OUT, a directory outside; HOME; STORE; RES, the resource; and what else each needs.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define NOT_HERE  77
#define NOBODY    65534
#define LEAKED    99 /* a descriptor that escape.py leaves open */
#define MARK      "broken into\n"
#define HIGH_BIT  (UINT64_C(1) << 32)
#define OPEN_TREE 428
#define FSOPEN    430
#define CLONE3    435
#define IO_URING  425

static const char *in(const char *variable, const char *name)
{
	static char paths[4][4096];
	static unsigned n;
	char *path = paths[n++ % 4];
	const char *dir = getenv(variable);

	(void)snprintf(path, sizeof(paths[0]), "%s/%s", dir ? dir : "/nonexistent", name);
	return path;
}

/* 0 or -1, as the calls themselves. */
static int scribble(int fd)
{
	int r = fd >= 0 && write(fd, MARK, sizeof(MARK) - 1) > 0 ? 0 : -1;

	if (fd >= 0)
		(void)close(fd);
	return r;
}

static int scribble_at(const char *path, int flags)
{
	return scribble(open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | flags, 0644));
}

static int readable(const char *path)
{
	char text[64];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text));

	return n > 0 ? 0 : -1;
}

/* What the filter never lets the kernel say. */
static int reached(long r)
{
	return r >= 0 || (errno != EPERM && errno != ENOSYS && errno != EAFNOSUPPORT) ? 0 : -1;
}

/* ---- files outside ---- */

static int write_file(void)
{
	return scribble_at(in("OUT", "victim"), 0);
}

static int write_append(void)
{
	return scribble_at(in("OUT", "victim"), O_APPEND);
}

static int create_file(void)
{
	return scribble_at(in("OUT", "new"), O_CREAT);
}

static int remove_file(void)
{
	return unlink(in("OUT", "victim"));
}

static int rename_file(void)
{
	return rename(in("OUT", "victim"), in("OUT", "renamed"));
}

static int exchange_files(void)
{
	return renameat2(AT_FDCWD, in("OUT", "victim"), AT_FDCWD, in("OUT", "dir"),
	                 RENAME_EXCHANGE);
}

static int make_dir(void)
{
	return mkdir(in("OUT", "newdir"), 0755);
}

static int remove_dir(void)
{
	return rmdir(in("OUT", "dir"));
}

static int make_link(void)
{
	return symlink("victim", in("OUT", "link"));
}

static int make_hard_link(void)
{
	return link(in("OUT", "victim"), in("OUT", "link"));
}

static int make_fifo(void)
{
	return mkfifo(in("OUT", "newfifo"), 0600);
}

static int truncate_file(void)
{
	return truncate(in("OUT", "victim"), 0);
}

static int change_mode(void)
{
	return chmod(in("OUT", "victim"), 0777);
}

static int change_time(void)
{
	return utimensat(AT_FDCWD, in("OUT", "victim"), (struct timespec[2]){ { 1, 0 }, { 1, 0 } },
	                 0);
}

static int change_attribute(void)
{
	return setxattr(in("OUT", "victim"), "user.mark", "x", 1, 0);
}

static int unnamed_file(void)
{
	char path[64];
	int fd = open(in("OUT", "."), O_TMPFILE | O_RDWR, 0600);

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return fd < 0 ? -1 : linkat(AT_FDCWD, path, AT_FDCWD, in("OUT", "new"), AT_SYMLINK_FOLLOW);
}

static int through_link(void)
{
	(void)symlink(in("OUT", "victim"), in("RES", "link"));
	return scribble_at(in("RES", "link"), 0);
}

static int through_linked_dir(void)
{
	(void)symlink(getenv("OUT"), in("RES", "linked"));
	return scribble_at(in("RES", "linked/new"), O_CREAT);
}

static int through_parent(void)
{
	return scribble_at(in("RES", "../out/victim"), 0);
}

static int through_proc_root(void)
{
	char path[4200];

	(void)snprintf(path, sizeof(path), "/proc/self/root%s", in("OUT", "victim"));
	return scribble_at(path, 0);
}

static int through_proc_cwd(void)
{
	return chdir(in("OUT", "")) < 0 ? -1 : scribble_at("/proc/self/cwd/victim", 0);
}

static int through_chroot(void)
{
	int fd = open("/", O_RDONLY | O_DIRECTORY);

	(void)mkdir(in("RES", "jail"), 0755);
	if (chroot(in("RES", "jail")) < 0 || fchdir(fd) < 0)
		return -1;
	for (int i = 0; i < 64; i++)
		(void)chdir("..");
	return chroot(".") < 0 ? -1 : write_file();
}

static int into_fifo(void)
{
	return scribble_at(in("OUT", "fifo"), 0);
}

/* ---- descriptors ---- */

static int reopen_input(void)
{
	return scribble_at("/proc/self/fd/0", 0);
}

static int leaked_dir(void)
{
	int fd = openat(LEAKED, "secret", O_RDONLY);

	return fd < 0 ? -1 : 0;
}

static int leaked_dir_write(void)
{
	return scribble(openat(LEAKED, "victim", O_WRONLY));
}

static int leaked_dir_above(void)
{
	return fchdir(LEAKED) < 0 ? -1 : scribble_at("../out/victim", 0);
}

static int connect_to(const struct sockaddr_un *to, socklen_t len, int type)
{
	int fd = socket(AF_UNIX, type, 0);

	return fd >= 0 && connect(fd, (const struct sockaddr *)to, len) == 0 ? fd : -1;
}

static int connect_path(const char *path)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };

	/* Names of sockets are short: by way of a directory. */
	if (chdir(path) < 0)
		return -1;
	(void)strcpy(to.sun_path, "socket");
	return connect_to(&to, sizeof(to), SOCK_STREAM);
}

static int passed_dir(void)
{
	int sock = connect_path(getenv("GIVEN"));
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	char byte;
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov,
		              .msg_iovlen = 1,
		              .msg_control = control.bytes,
		              .msg_controllen = sizeof(control.bytes) };
	int fd;

	if (sock < 0 || recvmsg(sock, &msg, 0) < 1 || !CMSG_FIRSTHDR(&msg))
		return NOT_HERE;
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	return scribble(openat(fd, "victim", O_WRONLY));
}

/* ---- sockets, signals, memory ---- */

static int abstract(int type, const char *variable)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	const char *name = getenv(variable);
	size_t len = strlen(name);

	memcpy(to.sun_path + 1, name, len);
	return connect_to(&to, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len),
	                  type) < 0
	               ? -1
	               : 0;
}

static int abstract_stream(void)
{
	return abstract(SOCK_STREAM, "ABSTRACT");
}

static int abstract_datagram(void)
{
	return abstract(SOCK_DGRAM, "ABSTRACT_DGRAM");
}

static int home_socket(void)
{
	return connect_path(in("HOME", "agent")) < 0 ? -1 : 0;
}

static int hidden_socket(void)
{
	return connect_path(in("HOME", ".gnupg")) < 0 ? -1 : 0;
}

/* All in the caller's process group; escape.py has somebody there who listens. */
static int kill_group(void)
{
	(void)signal(SIGUSR2, SIG_IGN);
	(void)kill(0, SIGUSR2);
	return 0; /* whether it arrived is seen outside */
}

/* Of the group; whether others were slowed down is seen outside. */
static int slow_down_group(void)
{
	return setpriority(PRIO_PGRP, 0, getpriority(PRIO_PROCESS, 0) + 1);
}

static int shared_memory(void)
{
	return shmget((key_t)strtol(getenv("SHM_KEY"), NULL, 10), 0, 0) < 0 ? -1 : 0;
}

static int trace_pid_one(void)
{
	return ptrace(PTRACE_SEIZE, 1, 0, 0) < 0 ? -1 : 0;
}

static int open_pid_one_memory(void)
{
	return open("/proc/1/mem", O_RDWR) < 0 ? -1 : 0;
}

static int open_pid_one_root(void)
{
	return open("/proc/1/root/", O_PATH | O_DIRECTORY) < 0 ? -1 : 0;
}

static int take_pid_one_descriptor(void)
{
	int fd = (int)syscall(SYS_pidfd_open, 1, 0);

	return syscall(SYS_pidfd_getfd, fd, 0, 0) < 0 ? -1 : 0;
}

/* ---- secrets ---- */

static int read_key(void)
{
	return readable(in("HOME", ".ssh/id"));
}

static int read_password(void)
{
	return readable(in("HOME", ".netrc"));
}

static int read_linked_secret(void)
{
	return readable(in("OUT", "cloud/credentials"));
}

static int read_key_by_proc(void)
{
	char path[4200];

	(void)snprintf(path, sizeof(path), "/proc/self/root%s", in("HOME", ".ssh/id"));
	return readable(path);
}

static int read_store(void)
{
	return readable(in("STORE", "atoll.db"));
}

static int write_store(void)
{
	return scribble_at(in("STORE", "new"), O_CREAT);
}

static int has_agent(void)
{
	return getenv("SSH_AUTH_SOCK") ? 0 : -1;
}

static int has_bus(void)
{
	return getenv("DBUS_SESSION_BUS_ADDRESS") ? 0 : -1;
}

static int has_store_name(void)
{
	return getenv("ATOLL_HOME") ? 0 : -1;
}

static int write_home(void)
{
	return scribble_at(in("HOME", ".profile"), 0); /* seen outside */
}

static int plant_in_home(void)
{
	return scribble_at(in("HOME", ".newrc"), O_CREAT); /* seen outside */
}

static int plant_key(void)
{
	return scribble_at(in("HOME", ".ssh/authorized_keys"), O_CREAT);
}

/* ---- namespaces and mounts ---- */

static int new_user(void)
{
	return unshare(CLONE_NEWUSER);
}

static int new_user_and(int flag)
{
	return unshare(CLONE_NEWUSER | flag);
}

static int new_mounts(void)
{
	return new_user_and(CLONE_NEWNS) < 0 ? -1 : mount("none", "/tmp", "tmpfs", 0, NULL);
}

static int new_network(void)
{
	return new_user_and(CLONE_NEWNET);
}

static int new_processes(void)
{
	return new_user_and(CLONE_NEWPID);
}

static int new_hostname(void)
{
	return new_user_and(CLONE_NEWUTS) < 0 ? -1 : sethostname("x", 1);
}

static int new_context(void)
{
	return new_user_and(CLONE_NEWNS) < 0 ? -1 : (int)syscall(FSOPEN, "tmpfs", 0) < 0 ? -1 : 0;
}

static int clone_user(void)
{
	long pid = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL);

	if (pid == 0)
		_exit(0);
	return pid < 0 ? -1 : 0;
}

static int clone3_user(void)
{
	uint64_t args[8] = { CLONE_NEWUSER, 0, 0, 0, SIGCHLD };
	long pid = syscall(CLONE3, args, sizeof(args));

	if (pid == 0)
		_exit(0);
	return pid < 0 ? -1 : 0;
}

static int pick_tree(void)
{
	return syscall(OPEN_TREE, AT_FDCWD, "/", 0) < 0 ? -1 : 0;
}

static int enter_namespace(void)
{
	return reached(syscall(SYS_setns, -1, 0));
}

static int remount(void)
{
	return mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL);
}

static int uncover(void)
{
	return umount2(in("HOME", ".ssh"), MNT_DETACH);
}

/* ---- privileges ---- */

static int set_id_program(void)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		if (setgid(NOBODY) < 0 || setuid(NOBODY) < 0)
			_exit(1);
		(void)execl(in("OUT", "set-id"), "attack", "am-i-root", NULL);
		_exit(1);
	}
	return waitpid(pid, &status, 0) == pid && status == 0 ? 0 : -1;
}

static int am_i_root(void)
{
	return geteuid() == 0 ? 0 : -1;
}

static int change_hostname(void)
{
	char name[65];

	return gethostname(name, sizeof(name)) < 0 ? -1 : sethostname(name, strlen(name));
}

static int make_device(void)
{
	return mknod(in("RES", "zero"), S_IFCHR | 0666, makedev(1, 5)) < 0
	               ? -1
	               : readable(in("RES", "zero"));
}

static int open_device(void)
{
	return readable(in("OUT", "zero"));
}

static int change_kernel_setting(void)
{
	return open("/proc/sys/vm/swappiness", O_WRONLY) < 0 ? -1 : 0;
}

static int press_sysrq(void)
{
	return open("/proc/sysrq-trigger", O_WRONLY) < 0 ? -1 : 0;
}

static int forge_layer(void)
{
	(void)mkdir(in("RES", "forged"), 0755);
	return setxattr(in("RES", "forged"), "trusted.overlay.opaque", "y", 1, 0);
}

/* ---- the kernel ---- */

static int read_keyring(void)
{
	char text[16];
	long key = syscall(SYS_keyctl, KEYCTL_SEARCH, KEY_SPEC_SESSION_KEYRING, "user",
	                   "atoll-escape", 0);

	return key < 0 || syscall(SYS_keyctl, KEYCTL_READ, key, text, sizeof(text)) < 0 ? -1 : 0;
}

static int add_to_keyring(void)
{
	return reached(syscall(SYS_add_key, "user", NULL, NULL, 0, KEY_SPEC_SESSION_KEYRING));
}

static int ask_for_key(void)
{
	return reached(syscall(SYS_request_key, "user", "atoll-no-such-key", NULL, 0));
}

static int load_program(void)
{
	return reached(syscall(SYS_bpf, 0, NULL, 1 << 20));
}

static int watch_performance(void)
{
	return reached(syscall(SYS_perf_event_open, NULL, 0, -1, -1, 0));
}

static int handle_faults(void)
{
	return reached(syscall(SYS_userfaultfd, 1 /* of user mode only */));
}

static int submit_in_ring(void)
{
	char params[256] = { 0 };

	return reached(syscall(IO_URING, 1, params));
}

static int watch_filesystem(void)
{
	return reached(syscall(SYS_fanotify_init, 0x200 /* FAN_REPORT_FID */, O_RDONLY));
}

static int read_kernel_log(void)
{
	return syscall(SYS_syslog, 10, NULL, 0) < 0 ? -1 : 0;
}

static int become_executable(void)
{
	return personality(READ_IMPLIES_EXEC) < 0 ? -1 : 0;
}

static int socket_of(int family, int type)
{
	int fd = socket(family, type, 0);

	/* What the kernel does not have it refuses in the same words. */
	return fd >= 0 || errno != EAFNOSUPPORT ? 0 : -1;
}

static int crypto_socket(void)
{
	return socket_of(AF_ALG, SOCK_SEQPACKET);
}

static int machine_socket(void)
{
	return socket_of(AF_VSOCK, SOCK_STREAM);
}

static int packet_socket(void)
{
	return socket_of(AF_PACKET, SOCK_RAW);
}

static int key_socket(void)
{
	return socket_of(AF_KEY, SOCK_RAW);
}

/* On what is no terminal; a kernel that gets to see it says so. */
static int type_into(uint64_t request)
{
	int fds[2];

	return pipe(fds) < 0 ? -1 : reached(syscall(SYS_ioctl, fds[0], request, "x"));
}

static int type_into_terminal(void)
{
	return type_into(TIOCSTI);
}

static int type_with_high_bits(void)
{
	return type_into(TIOCSTI | HIGH_BIT);
}

static int paste_into_console(void)
{
	return type_into(TIOCLINUX);
}

static void no_such_call(int sig)
{
	(void)sig;
	_exit(NOT_HERE);
}

static int call_with_32_bits(void)
{
#if defined(__x86_64__)
	long r = 20; /* getpid() of 32 bits */

	(void)signal(SIGSEGV, no_such_call);
	__asm__ volatile("int $0x80" : "+a"(r) : : "memory", "r8", "r9", "r10", "r11");
	return r > 0 ? 0 : -1;
#else
	(void)no_such_call;
	return NOT_HERE;
#endif
}

/* clang-format off */
#define ROW(name) { #name, name }
/* clang-format on */

static const struct {
	const char *name;
	int (*run)(void);
} attacks[] = {
	ROW(write_file),
	ROW(write_append),
	ROW(create_file),
	ROW(remove_file),
	ROW(rename_file),
	ROW(exchange_files),
	ROW(make_dir),
	ROW(remove_dir),
	ROW(make_link),
	ROW(make_hard_link),
	ROW(make_fifo),
	ROW(truncate_file),
	ROW(change_mode),
	ROW(change_time),
	ROW(change_attribute),
	ROW(unnamed_file),
	ROW(through_link),
	ROW(through_linked_dir),
	ROW(through_parent),
	ROW(through_proc_root),
	ROW(through_proc_cwd),
	ROW(through_chroot),
	ROW(into_fifo),
	ROW(reopen_input),
	ROW(leaked_dir),
	ROW(leaked_dir_write),
	ROW(leaked_dir_above),
	ROW(passed_dir),
	ROW(abstract_stream),
	ROW(abstract_datagram),
	ROW(home_socket),
	ROW(hidden_socket),
	ROW(kill_group),
	ROW(slow_down_group),
	ROW(shared_memory),
	ROW(trace_pid_one),
	ROW(open_pid_one_memory),
	ROW(open_pid_one_root),
	ROW(take_pid_one_descriptor),
	ROW(read_key),
	ROW(read_password),
	ROW(read_linked_secret),
	ROW(read_key_by_proc),
	ROW(read_store),
	ROW(write_store),
	ROW(has_agent),
	ROW(has_bus),
	ROW(has_store_name),
	ROW(write_home),
	ROW(plant_in_home),
	ROW(plant_key),
	ROW(new_user),
	ROW(new_mounts),
	ROW(new_network),
	ROW(new_processes),
	ROW(new_hostname),
	ROW(new_context),
	ROW(clone_user),
	ROW(clone3_user),
	ROW(pick_tree),
	ROW(enter_namespace),
	ROW(remount),
	ROW(uncover),
	ROW(set_id_program),
	ROW(change_hostname),
	ROW(make_device),
	ROW(open_device),
	ROW(change_kernel_setting),
	ROW(press_sysrq),
	ROW(forge_layer),
	ROW(read_keyring),
	ROW(add_to_keyring),
	ROW(ask_for_key),
	ROW(load_program),
	ROW(watch_performance),
	ROW(handle_faults),
	ROW(submit_in_ring),
	ROW(watch_filesystem),
	ROW(read_kernel_log),
	ROW(become_executable),
	ROW(crypto_socket),
	ROW(machine_socket),
	ROW(packet_socket),
	ROW(key_socket),
	ROW(type_into_terminal),
	ROW(type_with_high_bits),
	ROW(paste_into_console),
	ROW(call_with_32_bits),
	{ "am-i-root", am_i_root },
};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc == 2 && i < sizeof(attacks) / sizeof(attacks[0]); i++) {
		int r;

		if (strcmp(attacks[i].name, argv[1]) != 0)
			continue;
		r = attacks[i].run();
		if (r < 0)
			(void)fprintf(stderr, "%s: %s\n", argv[1], strerror(errno));
		return r < 0 ? EXIT_FAILURE : r;
	}
	(void)fprintf(stderr, "attack: there is no '%s'\n", argc == 2 ? argv[1] : "");
	return 2;
}

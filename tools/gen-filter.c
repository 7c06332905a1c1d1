/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the system call filter of helper/filter.c, when the project is built: a program for the
 * machine named on the command line, as rows of a C table. So nobody waits for it at a start.
 *
 * It is an allow-list in the spirit of what containers have by default. What is not in it is one of
 * three: refused by name (EPERM), refused for its arguments, or unknown, and then the kernel does
 * not have it (ENOSYS), so that a program takes the older way.
 *
 * Two programs, one after the other. The first looks at arguments and is made by libseccomp. In it each
 * "allow" is a jump to the second: one rule that allows a call and one that refuses it for an argument
 * cannot stand in one program of libseccomp, and that an argument is *not* of some value cannot be said
 * there of its lower half alone, which is all that the kernel looks at. The second knows the calls, by
 * ranges of their numbers: so it is a quarter as long as libseccomp's, and the kernel translates and
 * tries it at every start.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_STEPS   4096 /* the kernel's limit */
#define LOWER_HALF  UINT64_C(0xffffffff)
#define NEW_TIME_NS 0x80              /* CLONE_NEWTIME */
#define CALLS       1024              /* more than there are */
#define AT_ONCE     SCMP_ACT_TRACE(1) /* in the first program: allowed, and the second is not asked */

/* Calls that libseccomp may be too old to know; from 424 on the number is the same everywhere. */
static const struct {
	const char *name;
	int number;
} newer[] = {
	{ "cachestat", 451 },
	{ "fchmodat2", 452 },
	{ "map_shadow_stack", 453 },
	{ "futex_wake", 454 },
	{ "futex_wait", 455 },
	{ "futex_requeue", 456 },
	{ "statmount", 457 },
	{ "listmount", 458 },
	{ "lsm_get_self_attr", 459 },
	{ "lsm_list_modules", 461 },
	{ "mseal", 462 },
	{ "setxattrat", 463 },
	{ "getxattrat", 464 },
	{ "listxattrat", 465 },
	{ "removexattrat", 466 },
	{ "open_tree_attr", 467 },
	{ "file_getattr", 468 },
	{ "file_setattr", 469 },
	{ "futex_waitv", 449 },
	{ "set_mempolicy_home_node", 450 },
	{ "process_mrelease", 448 },
	{ "memfd_secret", 447 },
	{ "quotactl_fd", 443 },
	{ "mount_setattr", 442 },
	{ "landlock_create_ruleset", 444 },
	{ "landlock_add_rule", 445 },
	{ "landlock_restrict_self", 446 },
};

/* Those that the machine does not have are left out. */
static const char allowed[] =
	/* files */
	"access cachestat chdir chmod chown chown32 chroot close close_range copy_file_range "
	"creat dup dup2 dup3 faccessat faccessat2 fadvise64 fadvise64_64 fallocate "
	"fanotify_mark fchdir fchmod fchmodat fchmodat2 fchown fchown32 fchownat fcntl "
	"fcntl64 fdatasync fgetxattr file_getattr file_setattr flistxattr flock fremovexattr "
	"fsetxattr fstat fstat64 fstatat64 fstatfs fstatfs64 fsync ftruncate ftruncate64 "
	"futimesat getcwd getdents getdents64 getxattr getxattrat inotify_add_watch "
	"inotify_init inotify_init1 inotify_rm_watch lchown lchown32 lgetxattr link linkat "
	"listmount listxattr listxattrat llistxattr _llseek lremovexattr lseek lsetxattr "
	"lstat lstat64 mkdir mkdirat mknod mknodat name_to_handle_at newfstatat open openat "
	"openat2 pread64 preadv preadv2 pwrite64 pwritev pwritev2 read readahead readlink "
	"readlinkat readv removexattr removexattrat rename renameat renameat2 rmdir sendfile "
	"sendfile64 setxattr setxattrat splice stat stat64 statfs statfs64 statmount statx "
	"symlink symlinkat sync sync_file_range sync_file_range2 syncfs tee truncate "
	"truncate64 umask unlink unlinkat utime utimensat utimensat_time64 utimes vmsplice "
	"write writev "
	/* memory */
	"brk get_mempolicy madvise map_shadow_stack mbind membarrier memfd_create "
	"memfd_secret mincore mlock mlock2 mlockall mmap mmap2 mprotect mremap mseal msync "
	"munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect process_madvise "
	"process_mrelease remap_file_pages set_mempolicy set_mempolicy_home_node "
	/* processes, among them tracing one's own */
	"arch_prctl capget capset clone execve execveat exit exit_group fork get_robust_list "
	"get_thread_area getcpu getegid getegid32 geteuid geteuid32 getgid getgid32 getgroups "
	"getgroups32 getpgid getpgrp getpid getppid getpriority getresgid getresgid32 "
	"getresuid getresuid32 getrlimit getrusage getsid gettid getuid getuid32 ioprio_get "
	"ioprio_set kcmp kill landlock_add_rule landlock_create_ruleset "
	"landlock_restrict_self lsm_get_self_attr lsm_list_modules modify_ldt nice "
	"pidfd_getfd pidfd_open pidfd_send_signal prctl prlimit64 process_vm_readv "
	"process_vm_writev ptrace restart_syscall riscv_flush_icache rseq rt_sigaction "
	"rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend "
	"rt_sigtimedwait rt_sigtimedwait_time64 rt_tgsigqueueinfo s390_guarded_storage "
	"s390_runtime_instr s390_sthyi sched_get_priority_max sched_get_priority_min "
	"sched_getaffinity sched_getattr sched_getparam sched_getscheduler "
	"sched_rr_get_interval sched_rr_get_interval_time64 sched_setaffinity sched_setattr "
	"sched_setparam sched_setscheduler sched_yield seccomp set_robust_list "
	"set_thread_area set_tid_address setfsgid setfsgid32 setfsuid setfsuid32 setgid "
	"setgid32 setgroups setgroups32 setpgid setpriority setregid setregid32 setresgid "
	"setresgid32 setresuid setresuid32 setreuid setreuid32 setrlimit setsid setuid "
	"setuid32 sigaltstack signal sigprocmask sigreturn tgkill tkill ugetrlimit unshare "
	"vfork wait4 waitid waitpid "
	/* waiting, time */
	"adjtimex alarm clock_adjtime clock_adjtime64 clock_getres clock_getres_time64 "
	"clock_gettime clock_gettime64 clock_nanosleep clock_nanosleep_time64 epoll_create "
	"epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait "
	"epoll_wait_old eventfd eventfd2 futex futex_requeue futex_time64 futex_wait "
	"futex_waitv futex_wake getitimer gettimeofday io_cancel io_destroy io_getevents "
	"io_pgetevents io_pgetevents_time64 io_setup io_submit nanosleep _newselect pause "
	"poll ppoll ppoll_time64 pselect6 pselect6_time64 select setitimer signalfd signalfd4 "
	"time timer_create timer_delete timer_getoverrun timer_gettime timer_gettime64 "
	"timer_settime timer_settime64 timerfd_create timerfd_gettime timerfd_gettime64 "
	"timerfd_settime timerfd_settime64 times "
	/* talking */
	"accept accept4 bind connect getpeername getrandom getsockname getsockopt ioctl ipc "
	"listen mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedreceive_time64 "
	"mq_timedsend mq_timedsend_time64 mq_unlink msgctl msgget msgrcv msgsnd pipe pipe2 "
	"recv recvfrom recvmmsg recvmmsg_time64 recvmsg semctl semget semop semtimedop "
	"semtimedop_time64 send sendmmsg sendmsg sendto setsockopt shmat shmctl shmdt shmget "
	"shutdown socket socketpair sysinfo uname ";

/* There, and not for a command in a plan: better said than denied. */
static const char refused[] =
	/* mounts and namespaces */
	"fsconfig fsmount fsopen fspick mount mount_setattr move_mount open_tree "
	"open_tree_attr pivot_root setns umount umount2 "
	/* keys */
	"add_key keyctl request_key "
	/* into the kernel, or looking at it */
	"bpf create_module delete_module finit_module get_kernel_syms init_module "
	"kexec_file_load kexec_load lookup_dcookie perf_event_open query_module syslog "
	"userfaultfd "
	/* files by number, past every mount */
	"fanotify_init open_by_handle_at "
	/* the machine */
	"acct bdflush clock_settime clock_settime64 ioperm iopl migrate_pages move_pages "
	"nfsservctl quotactl quotactl_fd reboot s390_pci_mmio_read s390_pci_mmio_write "
	"setdomainname sethostname settimeofday stime swapoff swapon _sysctl sysfs uselib "
	"ustat vhangup vm86 vm86old ";

/* What a program may be, of personality(2): Linux, 32 bits, an old version's name, without random
 * addresses (debuggers); and the question. The others are doors to old faults. */
static const uint64_t personalities[] = { 0x0, 0x8, 0x20000, 0x20008, 0x40000, LOWER_HALF };

static const unsigned namespaces[] = { CLONE_NEWNS,  CLONE_NEWUTS, CLONE_NEWIPC,   CLONE_NEWUSER,
	                               CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWCGROUP };

/* Of the families of sockets up to AF_NETLINK, those with no use here; beyond it are none. */
static const int odd_families[] = { AF_AX25,   AF_IPX,     AF_APPLETALK, AF_NETROM,
	                            AF_BRIDGE, AF_ATMPVC,  AF_X25,       AF_ROSE,
	                            AF_DECnet, AF_NETBEUI, AF_SECURITY,  AF_KEY };

/* Putting words into the mouth of who sits at the terminal; the same of a console. */
static const uint64_t typing[] = { 0x5412 /* TIOCSTI */, 0x541c /* TIOCLINUX */ };

/* Slowing down a process group: the command's is its caller's. */
static const struct {
	const char *name;
	uint64_t group;
} whole_groups[] = {
	{ "setpriority", 1 /* PRIO_PGRP */ },
	{ "ioprio_set", 2 /* IOPRIO_WHO_PGRP */ },
};

/* Where the numbers of the terminal's requests are these. */
static const struct machine {
	const char *name; /* meson's cpu_family */
	uint32_t arch;
	unsigned clone_flags; /* which argument of clone() they are */
} machines[] = {
	{ "x86_64", SCMP_ARCH_X86_64, 0 },
	{ "aarch64", SCMP_ARCH_AARCH64, 0 },
	{ "riscv64", SCMP_ARCH_RISCV64, 0 },
	{ "s390x", SCMP_ARCH_S390X, 1 },
};

static const char *failed;

/* Remembers the first that went wrong. */
static void check(int r, const char *what)
{
	if (r < 0 && !failed) {
		failed = what;
		errno = -r;
	}
}

static int newer_number(const char *name)
{
	for (size_t i = 0; i < sizeof(newer) / sizeof(newer[0]); i++)
		if (strcmp(newer[i].name, name) == 0)
			return newer[i].number;
	return __NR_SCMP_ERROR;
}

/* A number that machine M does not have is negative. */
static int number_of(const struct machine *m, const char *name)
{
	int number = seccomp_syscall_resolve_name_arch(m->arch, name);

	if (number != __NR_SCMP_ERROR)
		return number;
	number = newer_number(name);
	if (number == __NR_SCMP_ERROR)
		check(-EINVAL, name);
	return number;
}

/* libseccomp wants the number that the call has where this runs, and translates it. */
static void rule(scmp_filter_ctx ctx, const struct machine *m, uint32_t action, const char *name,
                 const struct scmp_arg_cmp *arg)
{
	if (number_of(m, name) >= 0)
		check(seccomp_rule_add_exact_array(ctx, action, seccomp_syscall_resolve_name(name),
		                                   1, arg),
		      name);
}

static scmp_filter_ctx begin(const struct machine *m, uint32_t otherwise)
{
	scmp_filter_ctx ctx = seccomp_init(otherwise);

	if (!ctx) {
		check(-ENOMEM, "begin");
		return NULL;
	}
	if (m->arch != seccomp_arch_native()) {
		check(seccomp_arch_remove(ctx, SCMP_ARCH_NATIVE), "machine");
		check(seccomp_arch_add(ctx, m->arch), "machine");
	}
	/* Calls of another kind, as of 32 bits: what they mean there is not looked at here. */
	check(seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS)), "machine");
	/* A tree, not a list. */
	check(seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2), "tree");
	return ctx;
}

static scmp_filter_ctx by_argument(const struct machine *m)
{
	static const char *const makers[] = { "socket", "socketpair" };
	const uint32_t no_family = SCMP_ACT_ERRNO(EAFNOSUPPORT);
	scmp_filter_ctx ctx = begin(m, SCMP_ACT_ALLOW);
	struct scmp_arg_cmp arg;

	for (size_t i = 0; i < sizeof(namespaces) / sizeof(namespaces[0]); i++) {
		arg = (struct scmp_arg_cmp){ m->clone_flags, SCMP_CMP_MASKED_EQ, namespaces[i],
			                     namespaces[i] };
		rule(ctx, m, SCMP_ACT_ERRNO(EPERM), "clone", &arg);
		arg.arg = 0;
		rule(ctx, m, SCMP_ACT_ERRNO(EPERM), "unshare", &arg);
	}
	arg = (struct scmp_arg_cmp){ 0, SCMP_CMP_MASKED_EQ, NEW_TIME_NS, NEW_TIME_NS };
	rule(ctx, m, SCMP_ACT_ERRNO(EPERM), "unshare", &arg);
	for (size_t i = 0; i < sizeof(typing) / sizeof(typing[0]); i++) {
		arg = (struct scmp_arg_cmp){ 1, SCMP_CMP_MASKED_EQ, LOWER_HALF, typing[i] };
		rule(ctx, m, SCMP_ACT_ERRNO(EPERM), "ioctl", &arg);
	}
	for (size_t i = 0; i < sizeof(whole_groups) / sizeof(whole_groups[0]); i++) {
		arg = (struct scmp_arg_cmp){ 0, SCMP_CMP_MASKED_EQ, LOWER_HALF,
			                     whole_groups[i].group };
		rule(ctx, m, SCMP_ACT_ERRNO(EPERM), whole_groups[i].name, &arg);
	}
	for (size_t k = 0; k < sizeof(makers) / sizeof(makers[0]); k++) {
		arg = (struct scmp_arg_cmp){ 0, SCMP_CMP_GT, AF_NETLINK, 0 };
		rule(ctx, m, no_family, makers[k], &arg);
		for (size_t i = 0; i < sizeof(odd_families) / sizeof(odd_families[0]); i++) {
			arg = (struct scmp_arg_cmp){ 0, SCMP_CMP_MASKED_EQ, LOWER_HALF,
				                     (scmp_datum_t)odd_families[i] };
			rule(ctx, m, no_family, makers[k], &arg);
		}
	}
	for (size_t i = 0; i < sizeof(personalities) / sizeof(personalities[0]); i++) {
		arg = (struct scmp_arg_cmp){ 0, SCMP_CMP_EQ, personalities[i], 0 };
		rule(ctx, m, AT_ONCE, "personality", &arg);
	}
	return ctx;
}

/* The steps of CTX, which goes, behind the N that are there. */
static size_t append(struct sock_filter *steps, size_t n, scmp_filter_ctx ctx)
{
	size_t room = (MAX_STEPS - n) * sizeof(*steps);
	int fd = memfd_create("filter", MFD_CLOEXEC);
	ssize_t got = -1;

	if (fd >= 0 && !failed && seccomp_export_bpf(ctx, fd) == 0)
		got = pread(fd, steps + n, room, 0);
	if (got <= 0 || (size_t)got == room)
		check(-EIO, "export");
	if (fd >= 0)
		(void)close(fd);
	seccomp_release(ctx);
	return got < 0 ? n : n + (size_t)got / sizeof(*steps);
}

/* What the first program does not decide the second does. */
static void chain(struct sock_filter *steps, size_t first_end)
{
	for (size_t i = 0; i < first_end; i++) {
		if (steps[i].code != (BPF_RET | BPF_K))
			continue;
		if (steps[i].k == SECCOMP_RET_ALLOW)
			steps[i] = (struct sock_filter)BPF_STMT(BPF_JMP | BPF_JA,
			                                        (uint32_t)(first_end - i - 1));
		else if (steps[i].k == AT_ONCE)
			steps[i].k = SECCOMP_RET_ALLOW;
	}
}

/* ---- the second ---- */

struct range {
	uint32_t first, action;
};

static void mark(uint32_t *actions, const struct machine *m, const char *names, uint32_t action)
{
	char name[64];
	int len, number;

	for (; sscanf(names, "%63s%n", name, &len) == 1; names += len) {
		number = number_of(m, name);
		if (number >= CALLS)
			check(-ERANGE, "number of a call");
		else if (number >= 0)
			actions[number] = action;
	}
}

/* A search by halves. */
static size_t put_ranges(struct sock_filter *steps, size_t n, const struct range *v, size_t count)
{
	size_t half = count / 2, left_end;

	if (count == 1) {
		steps[n] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, v->action);
		return n + 1;
	}
	left_end = put_ranges(steps, n + 1, v, half);
	if (left_end - n - 1 > UINT8_MAX)
		check(-ERANGE, "jump");
	steps[n] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, v[half].first,
	                                        (uint8_t)(left_end - n - 1), 0);
	return put_ranges(steps, left_end, v + half, count - half);
}

static size_t by_number(struct sock_filter *steps, size_t n, const struct machine *m)
{
	static uint32_t actions[CALLS + 1];
	static struct range ranges[CALLS + 1];
	size_t count = 0;

	for (size_t i = 0; i <= CALLS; i++)
		actions[i] = SECCOMP_RET_ERRNO | ENOSYS;
	mark(actions, m, allowed, SECCOMP_RET_ALLOW);
	mark(actions, m, refused, SECCOMP_RET_ERRNO | EPERM);
	for (uint32_t i = 0; i <= CALLS; i++)
		if (count == 0 || actions[i] != ranges[count - 1].action)
			ranges[count++] = (struct range){ i, actions[i] };
	steps[n] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
	                                        offsetof(struct seccomp_data, nr));
	return put_ranges(steps, n + 1, ranges, count);
}

int main(int argc, char **argv)
{
	static struct sock_filter steps[MAX_STEPS];
	const struct machine *m = NULL;
	size_t first = 0, n = 0;

	for (size_t i = 0; argc == 2 && i < sizeof(machines) / sizeof(machines[0]); i++)
		if (strcmp(machines[i].name, argv[1]) == 0)
			m = &machines[i];
	if (m) {
		first = append(steps, 0, by_argument(m));
		chain(steps, first);
		n = by_number(steps, first, m);
	}
	if (failed) {
		(void)fprintf(stderr, "gen-filter: %s: %s\n", failed, strerror(errno));
		return EXIT_FAILURE;
	}
	(void)printf("/* Made by tools/gen-filter.c; %zu + %zu steps. */\n", first, n - first);
	for (size_t i = 0; i < n; i++)
		(void)printf("{ 0x%02x, %u, %u, 0x%08x },\n", steps[i].code, steps[i].jt,
		             steps[i].jf, steps[i].k);
	return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

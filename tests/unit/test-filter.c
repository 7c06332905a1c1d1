/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The filter of system calls, step by step as the kernel would run it: a row for each call that
 * must not get through, whatever the machine's kernel would have said to it, and for what programs
 * cannot do without.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

static const struct sock_filter steps[] = {
#include "helper/filter-steps.inc"
	{ 0, 0, 0, 0 },
};
#define N_STEPS (sizeof(steps) / sizeof(steps[0]) - 1)

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#elif defined(__riscv)
#define ARCH AUDIT_ARCH_RISCV64
#else
#define ARCH AUDIT_ARCH_S390X
#endif

#define ALLOW          SECCOMP_RET_ALLOW
#define FAILS(err)     ((uint32_t)SECCOMP_RET_ERRNO | (uint32_t)(err))
#define HIGH           (UINT64_C(0x1) << 32)
#define IO_URING_SETUP 425
#define CLONE3         435
#define UNKNOWN_CALL   999

static bool is_true(const struct sock_filter *s, uint32_t a)
{
	switch (BPF_OP(s->code)) {
	case BPF_JEQ:
		return a == s->k;
	case BPF_JGT:
		return a > s->k;
	case BPF_JGE:
		return a >= s->k;
	default:
		return (a & s->k) != 0; /* BPF_JSET */
	}
}

static uint32_t run(const struct seccomp_data *d)
{
	uint32_t a = 0;

	for (size_t i = 0; i < N_STEPS; i++) {
		const struct sock_filter *s = &steps[i];

		switch (BPF_CLASS(s->code)) {
		case BPF_LD:
			assert_true(s->k + sizeof(a) <= sizeof(*d));
			memcpy(&a, (const char *)d + s->k, sizeof(a));
			break;
		case BPF_ALU:
			assert_int_equal(BPF_OP(s->code), BPF_AND);
			a &= s->k;
			break;
		case BPF_JMP:
			i += BPF_OP(s->code) == BPF_JA ? s->k : is_true(s, a) ? s->jt : s->jf;
			break;
		case BPF_RET:
			return s->k;
		default:
			fail_msg("step %zu is of an unknown kind", i);
		}
	}
	fail_msg("the program runs past its end");
	return 0;
}

static uint32_t ask(long nr, uint64_t a0, uint64_t a1)
{
	const struct seccomp_data d = { .nr = (int)nr, .arch = ARCH, .args = { a0, a1 } };

	return run(&d);
}

static void sec_filter_refuses_by_name(void **state)
{
	static const long calls[] = {
		SYS_mount,
		SYS_umount2,
		SYS_pivot_root,
		SYS_setns,
		SYS_fsopen,
		SYS_fsconfig,
		SYS_fsmount,
		SYS_fspick,
		SYS_move_mount,
		SYS_open_tree,
		442,
		467,
		SYS_add_key,
		SYS_keyctl,
		SYS_request_key,
		SYS_bpf,
		SYS_init_module,
		SYS_finit_module,
		SYS_delete_module,
		SYS_kexec_load,
		SYS_perf_event_open,
		SYS_userfaultfd,
		SYS_syslog,
		SYS_open_by_handle_at,
		SYS_fanotify_init,
		SYS_acct,
		SYS_reboot,
		SYS_swapon,
		SYS_swapoff,
		SYS_quotactl,
		SYS_settimeofday,
		SYS_clock_settime,
		SYS_sethostname,
		SYS_setdomainname,
		SYS_vhangup,
		SYS_move_pages,
		SYS_migrate_pages,
	};

	(void)state;
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		if (ask(calls[i], 0, 0) != FAILS(EPERM))
			fail_msg("call %ld is let through", calls[i]);
}

static void sec_filter_knows_no_others(void **state)
{
	(void)state;
	assert_int_equal(ask(IO_URING_SETUP, 0, 0), FAILS(ENOSYS));
	assert_int_equal(ask(IO_URING_SETUP + 1, 0, 0), FAILS(ENOSYS));
	assert_int_equal(ask(IO_URING_SETUP + 2, 0, 0), FAILS(ENOSYS));
	/* Its flags are in memory, where a filter cannot look; then everybody uses clone(). */
	assert_int_equal(ask(CLONE3, 0, 0), FAILS(ENOSYS));
	assert_int_equal(ask(UNKNOWN_CALL, 0, 0), FAILS(ENOSYS));
}

static void sec_filter_refuses_namespaces(void **state)
{
	static const uint64_t flags[] = { CLONE_NEWNS,  CLONE_NEWUTS, CLONE_NEWIPC,   CLONE_NEWUSER,
		                          CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWCGROUP };

	(void)state;
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
#if defined(__s390__)
		assert_int_equal(ask(SYS_clone, 0, flags[i] | 17), FAILS(EPERM));
#else
		assert_int_equal(ask(SYS_clone, flags[i] | 17, 0), FAILS(EPERM));
		assert_int_equal(ask(SYS_clone, flags[i] | HIGH, 0), FAILS(EPERM));
#endif
		assert_int_equal(ask(SYS_unshare, flags[i], 0), FAILS(EPERM));
		assert_int_equal(ask(SYS_unshare, flags[i] | HIGH, 0), FAILS(EPERM));
	}
	assert_int_equal(ask(SYS_unshare, 0x80, 0), FAILS(EPERM));
	assert_int_equal(ask(SYS_unshare, CLONE_FILES | CLONE_FS, 0), ALLOW);
	assert_int_equal(ask(SYS_clone, CLONE_VM | CLONE_THREAD | CLONE_SIGHAND, 0), ALLOW);
}

static void sec_filter_refuses_typing(void **state)
{
	(void)state;
	/* The kernel looks at 32 bits of the number. */
	assert_int_equal(ask(SYS_ioctl, 0, TIOCSTI), FAILS(EPERM));
	assert_int_equal(ask(SYS_ioctl, 0, TIOCSTI | HIGH), FAILS(EPERM));
	assert_int_equal(ask(SYS_ioctl, 0, TIOCLINUX), FAILS(EPERM));
	assert_int_equal(ask(SYS_ioctl, 0, TIOCLINUX | HIGH << 7), FAILS(EPERM));
	assert_int_equal(ask(SYS_ioctl, 0, TIOCGWINSZ), ALLOW);
	assert_int_equal(ask(SYS_ioctl, 0, FIONREAD), ALLOW);
}

static void sec_filter_leaves_groups_alone(void **state)
{
	(void)state;
	assert_int_equal(ask(SYS_setpriority, PRIO_PROCESS, 0), ALLOW);
	assert_int_equal(ask(SYS_setpriority, PRIO_PGRP, 0), FAILS(EPERM));
	assert_int_equal(ask(SYS_setpriority, PRIO_PGRP | HIGH, 0), FAILS(EPERM));
	assert_int_equal(ask(SYS_ioprio_set, 1, 0), ALLOW);
	assert_int_equal(ask(SYS_ioprio_set, 2, 0), FAILS(EPERM));
}

static void sec_filter_chooses_sockets(void **state)
{
	static const uint64_t good[] = { AF_UNIX, AF_INET, AF_INET6, AF_NETLINK };

	(void)state;
	for (uint64_t family = 1; family < 64; family++) {
		uint32_t wanted = FAILS(EAFNOSUPPORT);

		for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
			if (family == good[i])
				wanted = ALLOW;
		assert_int_equal(ask(SYS_socket, family, SOCK_STREAM), wanted);
		if (wanted != ALLOW)
			assert_int_equal(ask(SYS_socket, family | HIGH, 0), wanted);
	}
	assert_int_equal(ask(SYS_socketpair, AF_UNIX, 0), ALLOW);
	assert_int_equal(ask(SYS_socketpair, AF_TIPC, 0), FAILS(EAFNOSUPPORT));
}

static void sec_filter_knows_personalities(void **state)
{
	(void)state;
	assert_int_equal(ask(SYS_personality, 0, 0), ALLOW);
	assert_int_equal(ask(SYS_personality, 0x40000, 0), ALLOW);
	assert_int_equal(ask(SYS_personality, 0xffffffff, 0), ALLOW);
	assert_int_equal(ask(SYS_personality, 0x100000, 0), FAILS(ENOSYS)); /* pages at 0 */
	assert_int_equal(ask(SYS_personality, 0x400000, 0), FAILS(ENOSYS)); /* all executable */
}

static void sec_filter_refuses_other_kinds(void **state)
{
	struct seccomp_data d = { .nr = SYS_getpid, .arch = ARCH };

	(void)state;
	assert_int_equal(run(&d), ALLOW);
	d.arch = AUDIT_ARCH_I386;
	assert_int_equal(run(&d), FAILS(ENOSYS));
#if defined(__x86_64__)
	d = (struct seccomp_data){ .nr = SYS_getpid | 0x40000000, .arch = ARCH };
	assert_int_equal(run(&d), FAILS(ENOSYS)); /* x32 */
#endif
}

static void sec_filter_lets_programs_live(void **state)
{
	static const long calls[] = {
		SYS_read,
		SYS_write,
		SYS_openat,
		SYS_openat2,
		SYS_close,
		SYS_mmap,
		SYS_execve,
		SYS_wait4,
		SYS_ptrace,
		SYS_process_vm_readv,
		SYS_futex,
		SYS_epoll_pwait,
		SYS_statx,
		SYS_renameat2,
		SYS_copy_file_range,
		SYS_chroot,
		SYS_setuid,
		SYS_capset,
		SYS_seccomp,
		SYS_memfd_create,
		SYS_kill,
		SYS_pidfd_open,
		SYS_prctl,
		SYS_shmget,
		SYS_sendmsg,
		SYS_getrandom,
		SYS_rseq,
		SYS_close_range,
		452 /* fchmodat2 */,
		444 /* landlock_create_ruleset */,
		SYS_inotify_add_watch,
		SYS_mknodat,
	};

	(void)state;
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		if (ask(calls[i], 0, 0) != ALLOW)
			fail_msg("call %ld is refused", calls[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sec_filter_refuses_by_name),
		cmocka_unit_test(sec_filter_knows_no_others),
		cmocka_unit_test(sec_filter_refuses_namespaces),
		cmocka_unit_test(sec_filter_refuses_typing),
		cmocka_unit_test(sec_filter_leaves_groups_alone),
		cmocka_unit_test(sec_filter_chooses_sockets),
		cmocka_unit_test(sec_filter_knows_personalities),
		cmocka_unit_test(sec_filter_refuses_other_kinds),
		cmocka_unit_test(sec_filter_lets_programs_live),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

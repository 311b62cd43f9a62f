/* Preloaded into a program, it installs a seccomp filter that answers the system calls of the environment variable
 * REFUSE, numbers with commas between, with EPERM. The loader, which needs some of them, is done by then. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>

__attribute__((constructor)) static void refuse(void)
{
	struct sock_filter filter[64] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	};
	unsigned short length = 1;
	char *next = getenv("REFUSE");
	while (next && *next && length < 60) {
		unsigned number = strtoul(next, &next, 10);
		filter[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1);
		filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
		next += *next == ',';
	}
	filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog program = { .len = length, .filter = filter };
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		abort();
}

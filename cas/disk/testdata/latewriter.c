// latewriter MODE N makes the files out0 … outN-1 in its working directory and has them changed when
// it has ended. It exits with 0 if that is under way, with 77 if it is not permitted.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#ifndef PIECE
#define PIECE (1 << 18)
#endif
enum { DEPTH = 8, SIZE = DEPTH * PIECE, MANY = 4096 };

static void die(const char *what) {
	int refused = errno == EPERM || errno == EACCES || errno == ENOSYS || errno == ECONNREFUSED;
	perror(what);
	exit(refused ? 77 : 1);
}

static int out(int i, int flags) {
	char name[32];
	snprintf(name, sizeof name, "out%d", i);
	int fd = open(name, flags, 0644);
	if (fd < 0) die(name);
	return fd;
}

// fill gives an output its contents, on the disk.
static void fill(int fd, char c, int seed) {
	static char *b;
	if (!b && posix_memalign((void **)&b, 4096, PIECE)) die("memory");
	memset(b, c, PIECE);
	for (int k = 0; k < DEPTH; k++) {
		memcpy(b, &seed, sizeof seed);
		if (pwrite(fd, b, PIECE, (off_t)k * PIECE) != PIECE) die("write");
	}
}

static char *evil(void) {
	char *b = mmap(0, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (b == MAP_FAILED) die("memory");
	memset(b, 'E', PIECE);
	return b;
}

// A ring takes up to MANY requests, none of whose results anybody looks at.
static struct ring {
	int fd;
	unsigned *tail, *mask, *array, queued;
	struct io_uring_sqe *sqe;
} ring;

static void ring_open(void) {
	struct io_uring_params p;
	memset(&p, 0, sizeof p);
	ring.fd = syscall(SYS_io_uring_setup, MANY, &p);
	if (ring.fd < 0) die("io_uring_setup");
	char *sq = mmap(0, p.sq_off.array + p.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring.fd, IORING_OFF_SQ_RING);
	ring.sqe = mmap(0, p.sq_entries * sizeof *ring.sqe, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring.fd, IORING_OFF_SQES);
	if (sq == MAP_FAILED || ring.sqe == MAP_FAILED) die("mmap of the ring");
	ring.tail = (unsigned *)(sq + p.sq_off.tail), ring.mask = (unsigned *)(sq + p.sq_off.ring_mask);
	ring.array = (unsigned *)(sq + p.sq_off.array);
}

static void ring_queue(int op, int fd, void *b, off_t at) {
	unsigned i = *ring.tail & *ring.mask;
	struct io_uring_sqe *s = &ring.sqe[i];
	memset(s, 0, sizeof *s);
	s->opcode = op, s->fd = fd, s->addr = (uintptr_t)b, s->len = PIECE, s->off = at;
	ring.array[i] = i;
	__atomic_store_n(ring.tail, *ring.tail + 1, __ATOMIC_RELEASE);
	ring.queued++;
}

static void ring_submit(void) {
	if (syscall(SYS_io_uring_enter, ring.fd, ring.queued, 0, 0, 0, 0) < 0) die("io_uring_enter");
}

static void uring(int n, int direct) {
	char *b = evil();
	int fd[n];
	for (int i = 0; i < n; i++) fill(fd[i] = out(i, O_RDWR | O_CREAT | O_TRUNC | direct), 'g', i);
	ring_open();
	for (int k = 0; k < DEPTH; k++)
		for (int i = 0; i < n; i++) ring_queue(IORING_OP_WRITE, fd[i], b, (off_t)k * PIECE);
	ring_submit();
}

// pinned has the kernel read a file of its own into a mapping of an output, of which then only
// pages are held.
static void pinned(int n) {
	char *map[n];
	int src = open("source", O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
	if (src < 0) die("source");
	fill(src, 'E', -1);
	fsync(src);
	for (int i = 0; i < n; i++) {
		int fd = out(i, O_RDWR | O_CREAT | O_TRUNC);
		fill(fd, 'g', i);
		map[i] = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (map[i] == MAP_FAILED) die("mmap");
		for (int k = 0; k < SIZE; k += 4096) *(volatile char *)(map[i] + k) = map[i][k];
		close(fd);
	}
	ring_open();
	for (int k = 0; k < DEPTH; k++)
		for (int i = 0; i < n; i++) ring_queue(IORING_OP_READ, src, map[i] + (off_t)k * PIECE, (off_t)k * PIECE);
	ring_submit();
	unlink("source");
}

static void aio(int n) {
	aio_context_t ctx = 0;
	if (syscall(SYS_io_setup, MANY, &ctx) < 0) die("io_setup");
	char *b = evil();
	for (int i = 0; i < n; i++) {
		int fd = out(i, O_RDWR | O_CREAT | O_TRUNC | O_DIRECT);
		fill(fd, 'g', i);
		for (int k = 0; k < DEPTH; k++) {
			struct iocb c = {.aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = fd, .aio_buf = (uintptr_t)b, .aio_nbytes = PIECE, .aio_offset = (off_t)k * PIECE};
			struct iocb *list[] = {&c};
			if (syscall(SYS_io_submit, ctx, 1, list) < 0) die("io_submit");
		}
	}
}

// away forks a process that nobody waits for, out of session and, where that is allowed, of its
// namespaces and cgroup, too. It returns in that process only; the other one exits.
static void away(void) {
	int p[2];
	char c;
	if (pipe(p) < 0) die("pipe");
	if (fork()) { // has the other one begun?
		close(p[1]);
		read(p[0], &c, 1);
		exit(0);
	}
	close(p[0]);
	setsid();
	prctl(PR_SET_PDEATHSIG, 0);
	unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS);
	FILE *f = fopen("/sys/fs/cgroup/cgroup.procs", "w");
	if (f) fprintf(f, "0\n"), fclose(f);
	if (fork()) _exit(0);
	for (int s = 1; s < 32; s++) signal(s, SIG_IGN);
	close(0), close(1), close(2);
	write(p[1], "x", 1);
	close(p[1]);
}

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void mapping(int n) {
	char *map[n];
	for (int i = 0; i < n; i++) {
		int fd = out(i, O_RDWR | O_CREAT | O_TRUNC);
		fill(fd, 'g', i);
		map[i] = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (map[i] == MAP_FAILED) die("mmap");
		close(fd);
	}
	away();
	for (double end = now() + 1; now() < end;)
		for (int i = 0; i < n; i++) map[i][rand() % SIZE]++;
	_exit(0);
}

static void splices(int n) {
	int fd[n], p[2];
	char *b = evil();
	for (int i = 0; i < n; i++) fill(fd[i] = out(i, O_RDWR | O_CREAT | O_TRUNC), 'g', i);
	away();
	if (pipe(p) < 0) _exit(1);
	for (double end = now() + 1; now() < end;)
		for (int i = 0; i < n; i++) {
			struct iovec v = {b, 65536};
			loff_t at = rand() % SIZE;
			vmsplice(p[1], &v, 1, SPLICE_F_GIFT | SPLICE_F_NONBLOCK);
			splice(p[0], 0, fd[i], &at, 65536, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
			at = 0;
			splice(fd[i], &at, p[1], 0, 65536, SPLICE_F_NONBLOCK);
			at = rand() % SIZE;
			splice(p[0], 0, fd[i], &at, 65536, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
		}
	_exit(0);
}

static struct sockaddr_un address(const char *name) {
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "%s", name);
	return a;
}

enum { PASSED = 4 };

// pass hands what it has open to keep, the command of another action.
static void pass(int n, const char *name) {
	struct sockaddr_un a = address(name);
	int s = socket(AF_UNIX, SOCK_DGRAM, 0);
	for (int i = 0; i < n; i++) {
		int fd[PASSED] = {out(i, O_RDWR | O_CREAT | O_TRUNC)};
		fill(fd[0], 'g', i);
		fd[1] = out(i, O_RDONLY), fd[2] = out(i, O_PATH), fd[3] = open(".", O_RDONLY | O_DIRECTORY);
		char control[CMSG_SPACE(sizeof fd)];
		struct iovec v = {"x", 1};
		struct msghdr m = {.msg_name = &a, .msg_namelen = sizeof a, .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof fd);
		memcpy(CMSG_DATA(c), fd, sizeof fd);
		for (double end = now() + 20; sendmsg(s, &m, 0) < 0;) {
			if (errno == ECONNREFUSED && now() < end) continue; // it has not begun yet
			die("sendmsg");
		}
		for (int k = 0; k < PASSED; k++) close(fd[k]);
	}
}

// keep takes what it is passed, and writes to it in each way, until it is ended.
static void keep(const char *name) {
	struct sockaddr_un a = address(name);
	int s = socket(AF_UNIX, SOCK_DGRAM, 0), fds[1024], n = 0;
	if (bind(s, (void *)&a, sizeof a) < 0) die("bind");
	for (double end = now() + 60; now() < end;) {
		char x, control[CMSG_SPACE(PASSED * sizeof(int))];
		struct iovec v = {&x, 1};
		struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
		if (n + PASSED <= 1024 && recvmsg(s, &m, MSG_DONTWAIT) == 1) {
			struct cmsghdr *c = CMSG_FIRSTHDR(&m);
			if (c) memcpy(fds + n, CMSG_DATA(c), PASSED * sizeof(int)), n += PASSED;
		}
		for (int i = 0; i < n; i++) {
			char link[64];
			struct stat st;
			pwrite(fds[i], "EVIL", 4, 8);
			snprintf(link, sizeof link, "/proc/self/fd/%d", fds[i]);
			if (fstat(fds[i], &st) == 0 && S_ISREG(st.st_mode)) {
				int again = open(link, O_RDWR | O_NONBLOCK);
				if (again >= 0) pwrite(again, "EVIL", 4, 16), close(again);
				if (linkat(fds[i], "", AT_FDCWD, "linked", AT_EMPTY_PATH) == 0) {
					again = open("linked", O_RDWR | O_NONBLOCK);
					if (again >= 0) pwrite(again, "EVIL", 4, 24), close(again);
					unlink("linked");
				}
			} else if (S_ISDIR(st.st_mode)) {
				for (int k = 0; k < n / PASSED; k++) {
					char name[32];
					snprintf(name, sizeof name, "out%d", k);
					int again = openat(fds[i], name, O_RDWR | O_NONBLOCK);
					if (again >= 0) pwrite(again, "EVIL", 4, 32), close(again);
				}
			}
		}
	}
}

int main(int argc, char **argv) {
	const char *mode = argv[1];
	int n = argc > 2 ? atoi(argv[2]) : 0;
	if (!strcmp(mode, "uring")) uring(n, O_DIRECT);
	else if (!strcmp(mode, "uring-buffered")) uring(n, 0);
	else if (!strcmp(mode, "pinned")) pinned(n);
	else if (!strcmp(mode, "aio")) aio(n);
	else if (!strcmp(mode, "mapping")) mapping(n);
	else if (!strcmp(mode, "splice")) splices(n);
	else if (!strcmp(mode, "pass")) pass(n, argv[3]);
	else if (!strcmp(mode, "keep")) keep(argv[2]);
	else return 2;
	fflush(stdout);
	_exit(0);
}

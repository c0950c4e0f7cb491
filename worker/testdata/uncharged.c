// uncharged WHAT uses much memory of the kernel that no cgroup is charged for, and then waits.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/netlink.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// netlink sends requests that there are not, and reads no answer.
static void *netlink(void *unused)
{
	static struct {
		struct nlmsghdr head;
		char rest[8000];
	} request;

	request.head.nlmsg_len = sizeof(request);
	request.head.nlmsg_type = NLMSG_MIN_TYPE;
	request.head.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
	for (int i = 0; i < 600; i++) {
		int s = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);

		if (s < 0) {
			perror("socket");
			exit(1);
		}
		for (int k = 0; k < 30; k++)
			if (send(s, &request, sizeof(request), MSG_DONTWAIT) < 0)
				break;
	}
	for (;;)
		pause();
}

// locks takes 100,000. Without open files it only has them mapped.
static void locks(int command, int opened)
{
	for (int i = 0; i < 100; i++) {
		char name[24];
		int f;

		snprintf(name, sizeof(name), "lock%d", i);
		f = open(name, O_RDWR | O_CREAT, 0600);
		if (f < 0)
			pause();
		for (int k = 1000; k > 0; k--) {
			struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 2 * k, .l_len = 1};

			if (fcntl(f, command, &lock)) {
				perror("fcntl");
				exit(1);
			}
		}
		if (!opened) {
			if (mmap(NULL, 1, PROT_READ, MAP_SHARED, f, 0) == MAP_FAILED)
				pause();
			close(f);
		}
	}
	for (;;)
		pause();
}

// mounts file systems in a namespace of its own until there are so many.
static void mounts(int most)
{
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS)) {
		perror("unshare");
		exit(1);
	}
	for (int i = 0; i < most; i++)
		if (mount("none", "/tmp", "tmpfs", 0, "size=4k")) {
			perror("mount");
			pause();
		}
}

// hidden_mounts are in namespaces that no process is in, until it is stopped.
static void hidden_mounts(void)
{
	for (;;) {
		int status;

		if (!syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0)) {
			mounts(1000);
			_exit(open("/proc/self/ns/mnt", O_RDONLY) < 0);
		}
		if (wait(&status) < 0 || status) {
			fprintf(stderr, "mounts ended with %d\n", status);
			pause();
		}
	}
}

// copies of mounts until it is stopped: each time there are twice as many, below the first one.
static void copies(void)
{
	char at[24];

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS)) {
		perror("unshare");
		exit(1);
	}
	mkdir("/tmp/top", 0700);
	if (mount("/tmp/top", "/tmp/top", NULL, MS_BIND, NULL)) {
		perror("mount");
		exit(1);
	}
	for (int i = 0; i < 30; i++) {
		snprintf(at, sizeof(at), "/tmp/top/%d", i);
		mkdir(at, 0700);
		if (mount("/tmp/top", at, NULL, MS_BIND | MS_REC, NULL))
			break;
	}
	pause();
}

int main(int argc, char **argv)
{
	pthread_t thread;

	if (argc > 1 && !strcmp(argv[1], "netlink"))
		netlink(NULL);
	if (argc > 1 && !strcmp(argv[1], "netlink-of-a-thread") && !pthread_create(&thread, NULL, netlink, NULL))
		pthread_exit(NULL); // the first thread has ended
	if (argc > 1 && !strcmp(argv[1], "locks"))
		locks(F_SETLK, 1);
	if (argc > 1 && !strcmp(argv[1], "locks-of-files"))
		locks(F_OFD_SETLK, 1);
	if (argc > 1 && !strcmp(argv[1], "locks-of-mapped"))
		locks(F_OFD_SETLK, 0);
	if (argc > 1 && !strcmp(argv[1], "mounts"))
		mounts(1 << 20);
	if (argc > 1 && !strcmp(argv[1], "hidden-mounts"))
		hidden_mounts();
	if (argc > 1 && !strcmp(argv[1], "copies-of-mounts"))
		copies();
	return 2;
}

// hidden HOW has more than 5,000 file systems that the mounts of no process show, and then waits.
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

enum { children = 6, each = 900, sent = 100, layers = 450 };

static void must(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	_exit(1);
}

static void put(const char *path, const char *text)
{
	int f = open(path, O_WRONLY);

	must(f >= 0 && write(f, text, strlen(text)) > 0, path);
	close(f);
}

// enter new namespaces, as root in a user namespace of its own.
static void enter(int flags)
{
	char map[32];

	snprintf(map, sizeof(map), "0 %d 1", geteuid());
	must(!unshare(flags | CLONE_NEWNS), "unshare");
	if (flags) {
		put("/proc/self/uid_map", map);
		put("/proc/self/setgroups", "deny");
		put("/proc/self/gid_map", map);
	}
	must(!mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), "make mounts private");
}

static void add(const char *at) { must(!mount("none", at, "tmpfs", 0, NULL), "mount"); }

static void drop(const char *at) { must(!umount2(at, MNT_DETACH), "unmount"); }

// behind_chroot: they are below a folder that the process has left.
static void behind_chroot(void)
{
	for (int i = 0; i < each; i++)
		add("/tmp");
	must(!chroot("/usr") && !chdir("/"), "change root");
}

// of_bound_namespaces: a mount holds their namespace.
static void of_bound_namespaces(void)
{
	int in[2], out[2];
	char c, name[32];
	pid_t child;

	add("/tmp");
	must(!pipe(in) && !pipe(out) && open("/tmp/ns", O_CREAT, 0600) >= 0, "prepare");
	child = fork();
	if (!child) {
		enter(0);
		for (int i = 0; i < each; i++)
			add("/tmp");
		must(!prctl(PR_SET_DUMPABLE, 1), "show namespaces");
		must(write(in[1], "", 1) == 1 && read(out[0], &c, 1) == 1, "wait");
		_exit(0);
	}
	must(read(in[0], &c, 1) == 1, "child");
	snprintf(name, sizeof(name), "/proc/%d/ns/mnt", child);
	must(!mount(name, "/tmp/ns", NULL, MS_BIND, NULL), "bind a namespace");
	must(write(out[1], "", 1) == 1, "let go");
}

// detached: they are in a tree of mounts that is mounted nowhere.
static void detached(void)
{
	add("/tmp");
	for (int i = 0; i < each; i++) {
		char name[24];

		snprintf(name, sizeof(name), "/tmp/%d", i);
		must(!mkdir(name, 0700), "mkdir");
		add(name);
	}
	must(syscall(SYS_open_tree, AT_FDCWD, "/tmp", 1 /* OPEN_TREE_CLONE */ | AT_RECURSIVE) >= 0, "open_tree");
	drop("/tmp");
}

static void opened(void)
{
	for (int i = 0; i < each; i++) {
		add("/tmp");
		must(open("/tmp", O_RDONLY) >= 0, "open");
		drop("/tmp");
	}
}

static void mapped(void)
{
	for (int i = 0; i < each; i++) {
		int f;

		add("/tmp");
		f = open("/tmp/file", O_RDWR | O_CREAT, 0600);
		must(f >= 0 && mmap(NULL, 1, PROT_READ, MAP_SHARED, f, 0) != MAP_FAILED, "map");
		close(f);
		drop("/tmp");
	}
}

// on_the_way: descriptors wait in a socket.
static void on_the_way(void)
{
	int s[2];

	must(!socketpair(AF_UNIX, SOCK_STREAM, 0, s), "socketpair");
	for (int i = 0; i < each / sent; i++) {
		struct iovec byte = {"", 1};
		char text[CMSG_SPACE(sent * sizeof(int))] = {0};
		struct msghdr m = {.msg_iov = &byte, .msg_iovlen = 1, .msg_control = text, .msg_controllen = sizeof(text)};
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		int f[sent];

		for (int k = 0; k < sent; k++) {
			add("/tmp");
			f[k] = open("/tmp", O_RDONLY);
			must(f[k] >= 0, "open");
			drop("/tmp");
		}
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(f));
		memcpy(CMSG_DATA(c), f, sizeof(f));
		must(sendmsg(s[0], &m, 0) == 1, "send");
		for (int k = 0; k < sent; k++)
			close(f[k]);
	}
}

// of_bound_sockets: each has a socket with a name there.
static void of_bound_sockets(void)
{
	for (int i = 0; i < each; i++) {
		struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "/tmp/name"};
		int s = socket(AF_UNIX, SOCK_STREAM, 0);

		add("/tmp");
		must(s >= 0 && !bind(s, (struct sockaddr *)&name, sizeof(name)), "bind");
		drop("/tmp");
	}
}

// below_an_overlay: they are its layers.
static void below_an_overlay(void)
{
	static char options[4096] = "lowerdir=";

	add("/tmp");
	must(!chdir("/tmp") && !mkdir("o", 0700), "prepare");
	for (int i = 0; i < layers; i++) {
		char name[8];

		snprintf(name, sizeof(name), "%x", i);
		must(!mkdir(name, 0700), "mkdir");
		add(name);
		if (i > 0)
			strcat(options, ":");
		strcat(options, name);
	}
	must(!mount("none", "o", "overlay", 0, options), "mount an overlay");
	for (int i = 0; i < layers; i++) {
		char name[8];

		snprintf(name, sizeof(name), "%x", i);
		drop(name);
	}
}

static const struct {
	const char *name;
	void (*do_it)(void);
} ways[] = {
	{"behind-chroot", behind_chroot}, {"of-bound-namespaces", of_bound_namespaces}, {"detached", detached},
	{"opened", opened}, {"mapped", mapped}, {"on-the-way", on_the_way},
	{"of-bound-sockets", of_bound_sockets}, {"below-an-overlay", below_an_overlay},
};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc > 1 && i < sizeof(ways) / sizeof(*ways); i++) {
		if (strcmp(argv[1], ways[i].name))
			continue;
		for (int k = 0; k < children; k++) {
			if (fork())
				continue;
			setsid();
			if (fork())
				_exit(0); // the other one is an orphan
			enter(CLONE_NEWUSER);
			ways[i].do_it();
			for (;;)
				pause();
		}
		for (;;)
			pause();
	}
	return 2;
}

// hidden HOW has more than 5,000 file systems that the mounts of no process show, and then waits.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
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

enum { children = 6, each = 900, sent = 100, layers = 450, long_name = 250, deep = 20000 };

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

// stay on this CPU. Since Linux 6.18 each CPU numbers namespaces for itself, and a namespace can only be mounted in one with
// a smaller number: its child's number is larger if it was made on the same CPU.
static void stay(void)
{
	cpu_set_t here;

	CPU_ZERO(&here);
	CPU_SET(sched_getcpu(), &here);
	must(!sched_setaffinity(0, sizeof(here), &here), "stay on a CPU");
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

// of_a_child calls hold with a process in a namespace of its own that has them, and ends it.
static void of_a_child(void (*hold)(pid_t child))
{
	int in[2], out[2];
	char c;
	pid_t child;

	must(!pipe(in) && !pipe(out), "pipe");
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
	hold(child);
	must(write(out[1], "", 1) == 1, "let go");
}

static void bind_namespace(pid_t child)
{
	char name[32];

	snprintf(name, sizeof(name), "/proc/%d/ns/mnt", child);
	must(!mount(name, "/tmp/ns", NULL, MS_BIND, NULL), "bind a namespace");
}

static void open_table(pid_t child)
{
	char name[32];

	snprintf(name, sizeof(name), "/proc/%d/mountinfo", child);
	must(open(name, O_RDONLY) >= 0, "open a table of mounts");
}

// of_bound_namespaces: a mount holds their namespace.
static void of_bound_namespaces(void)
{
	add("/tmp");
	must(open("/tmp/ns", O_CREAT, 0600) >= 0, "prepare");
	of_a_child(bind_namespace);
}

// of_open_tables: an open table of its mounts holds their namespace.
static void of_open_tables(void) { of_a_child(open_table); }

// go_deep enters folders below top with names that are long when /proc shows them.
static void go_deep(const char *top, int folders)
{
	char name[long_name + 1] = {0};

	memset(name, '\n', long_name);
	must(!chdir(top), "chdir");
	for (int i = 0; i < folders; i++)
		must(!mkdir(name, 0700) && !chdir(name), "go deep");
}

// of_long_paths: what is mounted of each is deep in it.
static void of_long_paths(void)
{
	add("/tmp");
	must(!mkdir("/tmp/bound", 0700) && !mkdir("/tmp/whole", 0700), "prepare");
	for (int i = 0; i < each; i++) {
		add("/tmp/whole");
		go_deep("/tmp/whole", 5);
		must(!mount(".", "/tmp/bound", NULL, MS_BIND, NULL), "bind");
		drop("/tmp/whole");
	}
}

// behind_deep_paths: before them are mounts with descriptions of 40 MB.
static void behind_deep_paths(void)
{
	add("/tmp");
	go_deep("/tmp", deep);
	for (int i = 0; i < 30; i++)
		must(!mount(".", ".", NULL, MS_BIND, NULL), "bind");
	must(!chdir("/"), "chdir");
	for (int i = 0; i < each; i++)
		add("/tmp");
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

static void *wait_for_ever(void *unused)
{
	for (;;)
		pause();
	return NULL;
}

// mapped_by_a_thread: the first thread has ended.
static void mapped_by_a_thread(void)
{
	pthread_t thread;

	mapped();
	must(!pthread_create(&thread, NULL, wait_for_ever, NULL), "make a thread");
	pthread_exit(NULL);
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
	{"of-open-tables", of_open_tables}, {"of-long-paths", of_long_paths}, {"behind-deep-paths", behind_deep_paths},
	{"mapped-by-a-thread", mapped_by_a_thread},
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
			stay();
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

package cgroup

import (
	"reflect"
	"testing"

	"github.com/forerunner-build/forerunner/mountinfo"
)

const hybrid = `24 1 0:20 / / rw - ext4 /dev/root rw
30 24 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw
31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw
32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
33 30 0:29 / /sys/fs/cgroup/freezer rw shared:11 master:3 - cgroup cgroup rw,freezer
`

func TestHierarchies(t *testing.T) {
	const container = "41 1 0:27 /box/7 /my\\040groups ro - cgroup2 cgroup2 rw\n"
	cases := []struct {
		name, mounts, freezer, unified string
		version                        int
		want                           []hierarchy
	}{
		{
			name: "hybrid prefers v2", mounts: hybrid, freezer: "/f", unified: "/u",
			want: []hierarchy{{2, "/sys/fs/cgroup/unified/u"}, {1, "/sys/fs/cgroup/freezer/f"}},
		},
		{
			name: "told to take v1", mounts: hybrid, freezer: "/", unified: "/", version: 1,
			want: []hierarchy{{1, "/sys/fs/cgroup/freezer"}},
		},
		{
			name: "mount of a subtree", mounts: container, unified: "/box/7/job",
			want: []hierarchy{{2, "/my groups/job"}},
		},
		{
			name: "mount of exactly our group", mounts: container, unified: "/box/7",
			want: []hierarchy{{2, "/my groups"}},
		},
		{name: "a sibling with the same beginning", mounts: container, unified: "/box/77"},
		{name: "outside of the namespace", mounts: hybrid, freezer: "/../x", unified: "/.."},
		{name: "nothing mounted", freezer: "/", unified: "/"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			around := surroundings{mounts: onlyCgroups(mountinfo.Parse(c.mounts)), v1: map[string]string{"freezer": c.freezer}, unified: c.unified}
			got := around.hierarchies(c.version)
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

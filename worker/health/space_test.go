package health

import (
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/worker/health/diskquota"
)

// TestWithin: where a disk has quotas there is as much room as the least of them leaves, and the
// store's blobs go only for those that they count in.
func TestWithin(t *testing.T) {
	disk := diskquota.Space{Free: 100 << 30, MostBytes: 200 << 30, Files: 1 << 20, MostFiles: 1 << 21}
	of := func(free, files int64, foreign bool) diskquota.Space {
		r := diskquota.Space{Of: "quota", Free: free, MostBytes: 1 << 30, Files: files, MostFiles: 1 << 20, Foreign: foreign, Late: !foreign}
		return r
	}
	for name, c := range map[string]struct {
		quota                       diskquota.Space
		lacks, scarce, yields, late bool
	}{
		"much is left":     {of(1<<29, 1<<19, false), false, false, false, false},
		"little is left":   {of(1<<23+1, 1<<19, false), true, false, true, true},
		"nothing is left":  {of(0, 1<<19, false), true, true, true, true},
		"of a command":     {of(0, 1<<19, true), true, true, false, false},
		"few files":        {of(1<<29, leastFiles-1, true), true, false, false, false},
		"no files":         {of(1<<29, 0, false), true, true, true, true},
		"files, unbounded": {of(1<<29, diskquota.Unbounded, false), false, false, false, false},
	} {
		now := spaceOf(disk).within(spaceOf(c.quota))
		if now.lack > 0 != c.lacks || now.scarce != c.scarce || now.yields > 0 != c.yields || now.late != c.late {
			t.Errorf("%s: %+v", name, now)
		}
		if now.free != c.quota.Free || now.lasts != Lasts(c.quota.Free, min(c.quota.Files, disk.Files)) {
			t.Errorf("%s: %d bytes are free, and last %s", name, now.free, now.lasts)
		}
		if err := now.shortage("dir"); err != nil != c.lacks || err != nil && !strings.Contains(err.Error(), "quota is used up") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if now := spaceOf(diskquota.Space{Free: 3 << 20, MostBytes: 8 << 20, Files: 1, MostFiles: 1, AtOnce: 4 << 20}); now.lack != 1<<20 {
		t.Errorf("%d bytes lack for a write that may need 4 MiB at once", now.lack)
	}
}

package runner

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestTable: all that ask for the process table share a reading, and one that took long is used for
// longer.
func TestTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		table := &table{read: func() ([]process, error) {
			time.Sleep(10 * time.Millisecond)
			reads++
			return []process{{pid: reads}}, nil
		}}
		for _, step := range []struct {
			wait time.Duration
			want int
		}{{0, 1}, {0, 1}, {199 * time.Millisecond, 1}, {time.Millisecond, 2}, {0, 2}} {
			time.Sleep(step.wait)
			if all := table.latest(); len(all) != 1 || all[0].pid != step.want {
				t.Errorf("%+v, want reading %d", all, step.want)
			}
		}
	})
}

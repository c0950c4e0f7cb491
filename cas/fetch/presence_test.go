package fetch

import (
	"testing"
	"testing/synctest"

	"github.com/forerunner-build/forerunner/cas"
)

// TestWhereABlobWas: the reported presence is the one at the time of the request, whatever happened
// since.
func TestWhereABlobWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, ds := storeNewPatient("here", "coming", "absent")
		s := storeOpen(t, t.TempDir(), storeOptions{})
		r := s.Through(u)
		storePut(t, s, "here")
		_, wait := storeBehind(r, ds[1])
		presences := make(chan [3]cas.Presence, 1)
		go func() {
			var got [3]cas.Presence
			for i, d := range ds {
				file, _, was, err := r.OpenArriving(t.Context(), d)
				if err != nil {
					t.Error(err)
					continue
				}
				_ = file.Close()
				got[i] = was
			}
			presences <- got
		}()
		synctest.Wait()
		close(u.behind.gate)
		if got := <-presences; got != [3]cas.Presence{cas.Local, cas.OnItsWay, cas.Absent} {
			t.Errorf("they were at %v", got)
		}
		if _, err := wait(); err != nil {
			t.Error(err)
		}
		for i, d := range ds {
			if file, was, err := r.OpenWhole(t.Context(), d); err != nil || was != cas.Local || file.Close() != nil {
				t.Errorf("blob %d: at %v, %v", i, was, err)
			}
		}
	})
}

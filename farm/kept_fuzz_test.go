package farm

import (
	"encoding/json"
	"testing"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/farm/durable"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/records"
	"github.com/forerunner-build/forerunner/scheduler"
)

// FuzzKept reads arbitrary drains and quotas.
func FuzzKept(f *testing.F) {
	f.Add([]byte(`[{"host":"a*"},{"host":"b","slot":"?"}]`))
	f.Add([]byte(`[{}]`))
	f.Add([]byte(`[{"cohort":"c","instance":"a/b","min":1,"max":-2},{"cohort":7}]`))
	f.Add([]byte(`[{"cohort":"c","min":9223372036854775807}]`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, text []byte) {
		store := records.NewMemory(0)
		drains := durable.Text{Store: store, Key: records.Key{Bucket: names.DrainsBucket, Digest: digest.Of(digest.SHA256, nil)}}
		if err := drains.Write(t.Context(), text); err != nil {
			t.Fatal(err)
		}
		if patterns, err := durable.LoadDrains(t.Context(), drains); err == nil {
			if err := durable.KeepDrains(t.Context(), drains, patterns); err != nil {
				t.Fatal(err)
			}
			again, err := durable.LoadDrains(t.Context(), drains)
			if err != nil || len(again) != len(patterns) {
				t.Errorf("%v became %v, %v", patterns, again, err)
			}
		}
		quotas := durable.Quotas{Store: store}
		if err := store.Put(t.Context(), quotas.Key(), text); err != nil {
			t.Fatal(err)
		}
		list, err := quotas.Load(t.Context())
		if err == nil {
			// Records that an older scheduler may have written must not cause an error.
			_, err = scheduler.NewServer(scheduler.ServerOptions{
				Quotas: list, Storage: func(string, digest.Function) scheduler.Storage { return nil },
			})
			if err != nil {
				t.Error(err)
			}
		} else if json.Valid(text) && len(list) > 0 {
			t.Errorf("%v came of what is wrong: %v", list, err)
		}
	})
}

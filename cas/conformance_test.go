package cas_test

import (
	"testing"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/castest"
)

func TestStoreConforms(t *testing.T) {
	castest.TestStore(t, func(t *testing.T) castest.Store {
		s, err := cas.OpenStore(t.TempDir(), cas.StoreOptions{MaxBytes: castest.StoreBytes})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	})
}

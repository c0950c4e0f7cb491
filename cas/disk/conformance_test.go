package disk_test

import (
	"testing"

	"github.com/forerunner-build/forerunner/cas/castest"
	"github.com/forerunner-build/forerunner/cas/disk"
)

func TestStoreConforms(t *testing.T) {
	castest.TestStore(t, func(t *testing.T) castest.Store {
		s, err := disk.Open(t.TempDir(), disk.Options{MaxBytes: castest.StoreBytes})
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

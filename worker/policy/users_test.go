package policy

import (
	"slices"
	"testing"

	"github.com/forerunner-build/forerunner/vfs"
)

func TestLookUpUsers(t *testing.T) {
	u, err := LookUpUsers("root")
	if one := u.At(3); err != nil || one.UID != 0 || one.GID != 0 || !slices.Contains(one.Groups, 0) || u.Owner() == nil {
		t.Errorf("root is %+v, %v", u, err)
	}
	u, err = LookUpUsers("5:6")
	if one := u.At(3); err != nil || one.UID != 5 || one.GID != 6 || len(one.Groups) != 0 || *u.Owner() != (vfs.Owner{UID: 5, GID: 6}) {
		t.Errorf("5:6 is %+v, %v", u, err)
	}
	u, err = LookUpUsers("100-103")
	if one := u.nth(3); err != nil || one.UID != 103 || one.GID != 103 || len(one.Groups) != 0 || u.Owner() != nil {
		t.Errorf("100-103 is %+v, %v", u, err)
	}
	if u.Suffice(4) != nil || u.Suffice(5) == nil {
		t.Errorf("of 100-103: four %v, five %v", u.Suffice(4), u.Suffice(5))
	}
	for _, name := range []string{
		"", ":", "-1:0", "5:", "no such user", "5", "-", "5-", "-5", "6-5", "0-5", "5-6:7", "5-99999999999", "5-root",
	} {
		if u, err := LookUpUsers(name); err == nil {
			t.Errorf("%q is %+v", name, u)
		}
	}
}

// TestPart: a position whose user cannot be rid of a process gets another one, which no position
// has, and that user is free again when the process has ended.
func TestPart(t *testing.T) {
	u := OwnUsers(1000, 10, 3)
	expect := func(want ...uint32) {
		t.Helper()
		if got := []uint32{u.At(0).UID, u.At(1).UID}; !slices.Equal(got, want) {
			t.Errorf("users are %v, want %v", got, want)
		}
	}
	expect(1000, 1010)
	gone := make(chan struct{})
	if !u.Part(0, gone) {
		t.Error("a position keeps the user")
	}
	expect(1020, 1010)
	if u.Part(1, nil) {
		t.Error("a position gets a user who is not free")
	}
	expect(1020, 1010)
	close(gone)
	if !u.Part(1, nil) {
		t.Error("the first user is not free again")
	}
	expect(1020, 1000)
	one, err := LookUpUsers("5:6")
	check(t, err)
	if one.Part(0, nil) || (*Users)(nil).Part(0, nil) {
		t.Error("an only user is replaced")
	}
}

package auth

import (
	"context"
	"testing"
)

func TestOwns(t *testing.T) {
	rules := []Rule{
		{Users: []string{"alice", "bob"}, Instances: []string{"x"}, May: []Right{Execute}},
		{Users: []string{"carol"}, Instances: []string{"y"}, May: []Right{Execute}},
		{Users: []string{"eve"}, May: []Right{Read, Observe}},
		{Anyone: true, Instances: []string{"open"}, May: []Right{Execute}},
	}
	alice, bob, carol, eve := &Identity{User: "alice"}, &Identity{User: "bob"}, &Identity{User: "carol"}, &Identity{User: "eve"}
	this := &Identity{User: "this process", trusted: true}
	for _, test := range []struct {
		name           string
		who            *Identity
		owner          Owner
		byName, byUser bool
	}{
		{"his own", alice, Owner{"alice", "x"}, true, true},
		{"below his instance name", alice, Owner{"alice", "x/y"}, true, true},
		{"a colleague's", bob, Owner{"alice", "x"}, true, false},
		{"his own, for which he may not execute any more", alice, Owner{"alice", "y"}, false, false},
		{"a stranger's", carol, Owner{"alice", "x"}, false, false},
		{"an operator", eve, Owner{"alice", "x"}, true, true},
		{"nobody's", alice, Owner{"", "x"}, true, false},
		{"nobody's, to nobody", nil, Owner{"", "open"}, true, true},
		{"somebody's, to nobody", nil, Owner{"alice", "open"}, true, false},
		{"this process", this, Owner{"alice", "x"}, true, true},
	} {
		for owning, want := range map[Owning]bool{"": test.byName, OfInstances: test.byName, OfUsers: test.byUser} {
			g, err := New(Options{Certificates: true, Rules: rules, Owning: owning})
			if err != nil {
				t.Fatal(err)
			}
			ctx := context.WithValue(t.Context(), callKey{}, &call{guard: g, who: test.who})
			if got := Owns(ctx, test.owner, Observe); got != want {
				t.Errorf("%s, by %q: %t", test.name, owning, got)
			}
		}
	}
	if !Owns(t.Context(), Owner{"alice", "x"}, Observe) {
		t.Error("where nobody asks, everybody owns everything")
	}
}

// TestOwnsBuild: the publisher of a build without an instance name owns it, even without the right
// to execute for the empty instance name. An unknown user owns no builds.
func TestOwnsBuild(t *testing.T) {
	alice, bob, all, guest := &Identity{User: "alice"}, &Identity{User: "bob"}, &Identity{User: "all"}, (*Identity)(nil)
	rules := []Rule{
		{Users: []string{"alice", "bob"}, Instances: []string{"x"}, May: []Right{Execute}},
		{Users: []string{"all"}, May: []Right{Execute}},
		{Anyone: true, Instances: []string{"open"}, May: []Right{Execute}},
	}
	for _, test := range []struct {
		name           string
		who            *Identity
		owner          Owner
		byName, byUser bool
	}{
		{"his own, without a name", alice, Owner{"alice", ""}, true, true},
		{"a colleague's, without a name", bob, Owner{"alice", ""}, false, false},
		{"somebody's, to who may execute for all", all, Owner{"alice", ""}, true, false},
		{"nobody's, to nobody", guest, Owner{"", ""}, false, false},
		{"somebody's, to nobody", guest, Owner{"alice", ""}, false, false},
		{"his own", alice, Owner{"alice", "x"}, true, true},
		{"a colleague's", bob, Owner{"alice", "x"}, true, false},
		{"his own, for which he may not execute any more", alice, Owner{"alice", "y"}, false, false},
	} {
		for owning, want := range map[Owning]bool{OfInstances: test.byName, OfUsers: test.byUser} {
			g, err := New(Options{Certificates: true, Rules: rules, Owning: owning})
			if err != nil {
				t.Fatal(err)
			}
			ctx := context.WithValue(t.Context(), callKey{}, &call{guard: g, who: test.who})
			if got := OwnsBuild(ctx, test.owner, Observe); got != want {
				t.Errorf("%s, by %q: %t", test.name, owning, got)
			}
		}
	}
	if !OwnsBuild(t.Context(), Owner{"alice", ""}, Observe) {
		t.Error("where nobody asks, everybody owns everything")
	}
}

// TestWhoObservesByDefault: to observe is to see the operations of others.
func TestWhoObservesByDefault(t *testing.T) {
	for owning, want := range map[Owning]bool{OfInstances: true, OfUsers: false} {
		g, err := New(Options{Certificates: true, Owning: owning})
		if err != nil {
			t.Fatal(err)
		}
		user, operator := &Identity{User: "alice"}, &Identity{User: "root", Groups: []string{AdminsGroup}}
		if got := g.rules.allow(user, Observe, all, ""); got != want || !g.rules.allow(operator, Observe, all, "") {
			t.Errorf("by %s a user observes: %t", owning, got)
		}
	}
	if _, err := New(Options{Certificates: true, Owning: "nobody"}); err == nil {
		t.Error("an owning that there is not is taken")
	}
}

package policy

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"sync"

	"github.com/forerunner-build/forerunner/sandbox"
	"github.com/forerunner-build/forerunner/vfs"
)

// Users are the users of commands: one user for all of them, or a range with one for each
// concurrent action, so that no two actions have the same user.
type Users struct {
	Name  string       // as the operator wrote them
	first sandbox.User // the only one, or the first of the range
	count int          // of the range; 0: there is none
	// namespaces are the user namespaces of the range; empty: they have none, or none is made yet.
	namespaces map[vfs.Owner]*os.File

	mu sync.Mutex
	// given has the user of each position, and stuck the users with a process that cannot be
	// killed, until the channel is closed.
	given map[int]int             // guarded by mu
	stuck map[int]<-chan struct{} // guarded by mu
}

// OwnUsers returns a range of count unused users, from first on. With ids each is root of a user
// namespace with so many ids (sandbox.User); without, an ordinary user.
func OwnUsers(first, ids uint32, count int) *Users {
	last := uint64(first) + uint64(count)*uint64(max(ids, 1)) - 1
	return &Users{
		Name:  fmt.Sprintf("%d-%d", first, last),
		first: sandbox.User{UID: first, GID: first, IDs: ids}, count: count,
	}
}

// MakeNamespaces makes the user namespaces of OwnUsers with ids, for commands and for vfs.Options.
// The caller closes the files, even after an error. Call it before the first mount.
func (u *Users) MakeNamespaces() (map[vfs.Owner]*os.File, error) {
	made := map[vfs.Owner]*os.File{}
	if u == nil || u.first.IDs == 0 {
		return made, nil
	}
	for i := range u.count {
		one := u.nth(i)
		f, err := sandbox.UserNamespace(one)
		if err != nil {
			return made, err
		}
		made[*OwnerOf(one)] = f
	}
	u.namespaces = made
	return made, nil
}

// Namespace returns the user namespace of one of u; nil: it has none.
func (u *Users) Namespace(one *sandbox.User) *os.File {
	if u == nil || one == nil {
		return nil
	}
	return u.namespaces[*OwnerOf(one)]
}

// LookUpUsers finds a user of this machine by name, with all its groups; uses "UID:GID" as it is;
// or makes a range of "FIRST-LAST", whose users each have only the group of the same number. They
// need not exist on this machine.
func LookUpUsers(text string) (*Users, error) {
	u := &Users{Name: text}
	var err error
	first, last, isRange := strings.Cut(text, "-")
	uid, gid, isPair := strings.Cut(text, ":")
	switch {
	case isRange && isNumber(first) && isNumber(last):
		err = u.parseRange(first, last)
	case isPair:
		u.first, err = parseUser(uid, gid)
	default:
		u.first, err = lookUpUser(text)
	}
	if err != nil {
		return nil, fmt.Errorf("%q is neither a user's name nor UID:GID nor a range FIRST-LAST: %w", text, err)
	}
	return u, nil
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

func (u *Users) parseRange(first, last string) (err error) {
	if u.first, err = parseUser(first, first); err != nil {
		return err
	}
	end, err := parseUser(last, last)
	switch {
	case err != nil:
		return err
	case u.first.UID == 0:
		return fmt.Errorf("a range cannot contain root")
	case end.UID < u.first.UID:
		return fmt.Errorf("the last is before the first")
	}
	u.count = int(end.UID-u.first.UID) + 1
	return nil
}

func parseUser(uid, gid string) (u sandbox.User, err error) {
	for _, id := range []struct {
		text string
		to   *uint32
	}{{uid, &u.UID}, {gid, &u.GID}} {
		n, err := strconv.ParseUint(id.text, 10, 31)
		if err != nil {
			return u, err
		}
		*id.to = uint32(n)
	}
	return u, nil
}

func lookUpUser(name string) (sandbox.User, error) {
	found, err := user.Lookup(name)
	if err != nil {
		return sandbox.User{}, err
	}
	u, err := parseUser(found.Uid, found.Gid)
	if err != nil {
		return u, err
	}
	groups, err := found.GroupIds()
	if err != nil {
		return u, fmt.Errorf("groups: %w", err)
	}
	for _, g := range groups {
		id, err := strconv.ParseUint(g, 10, 32)
		if err != nil {
			return u, fmt.Errorf("groups: %w", err)
		}
		u.Groups = append(u.Groups, uint32(id))
	}
	return u, nil
}

// At returns the user of a position's actions; nil is the worker's user.
func (u *Users) At(position int) *sandbox.User {
	switch {
	case u == nil:
		return nil
	case u.count == 0:
		return u.nth(0)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, ok := u.given[position]; !ok && !u.giveLocked(position) {
		return u.nth(position) // checkUsers does not let it come to this
	}
	return u.nth(u.given[position])
}

// Part takes away a position's user, because a process of that user cannot be killed before gone is
// closed. It returns false if there is no other one, and the position keeps the user.
func (u *Users) Part(position int, gone <-chan struct{}) bool {
	if u == nil || u.count == 0 {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	left, ok := u.given[position]
	if !ok || !u.giveLocked(position) {
		return false
	}
	if u.stuck == nil {
		u.stuck = map[int]<-chan struct{}{}
	}
	u.stuck[left] = gone
	return true
}

// giveLocked gives a position the first free user of the range.
func (u *Users) giveLocked(position int) bool {
	taken := map[int]bool{}
	for _, i := range u.given {
		taken[i] = true
	}
	for i, gone := range u.stuck {
		select {
		case <-gone:
			delete(u.stuck, i)
		default:
			taken[i] = true
		}
	}
	for i := range u.count {
		if !taken[i] {
			if u.given == nil {
				u.given = map[int]int{}
			}
			u.given[position] = i
			return true
		}
	}
	return false
}

// nth is one of the range, or the only one.
func (u *Users) nth(i int) *sandbox.User {
	one := u.first
	step := uint32(i) * max(one.IDs, 1)
	one.UID += step
	one.GID += step
	return &one
}

// Owner returns the owner of the input roots of most actions; nil is the worker's user, also if
// there is no such owner.
func (u *Users) Owner() *vfs.Owner {
	if u == nil || u.count > 0 {
		return nil
	}
	return OwnerOf(&u.first)
}

// owners are all of them.
func (u *Users) owners() (all []vfs.Owner) {
	if u == nil {
		return nil
	}
	for i := range max(u.count, 1) {
		all = append(all, *OwnerOf(u.nth(i)))
	}
	return all
}

// Suffice returns an error if there are fewer users than positions.
func (u *Users) Suffice(positions int) error {
	if u == nil || u.count == 0 || u.count >= positions {
		return nil
	}
	return fmt.Errorf("--user %s has %d users, but needs %d: one for each action that the worker fetches for, executes or reports at the same time",
		u.Name, u.count, positions)
}

// OwnerOf returns the owner of the input root of an action of u.
func OwnerOf(u *sandbox.User) *vfs.Owner {
	if u == nil {
		return nil
	}
	return &vfs.Owner{UID: u.UID, GID: u.GID}
}

// As calls f with the file access of u, so that files made by f belong to u; nil is the worker's
// user.
func As(u *sandbox.User, f func() error) error {
	if u == nil {
		return f()
	}
	return OwnerOf(u).Act(f)
}

// Key identifies u by numbers, because a name can become another user's.
func (u *Users) Key() []string {
	if u == nil {
		groups, _ := os.Getgroups() // never fails for a process that asks for its own
		return []string{"worker's", fmt.Sprint(os.Getuid(), os.Getgid(), groups)}
	}
	if u.first.IDs > 0 {
		return []string{"root of a namespace", fmt.Sprint(u.first.IDs)} // it sees nothing of its identity outside
	}
	return []string{"own", fmt.Sprint(u.first.UID, u.first.GID, u.first.Groups, u.count)}
}

package fuse

import (
	"fmt"
	"os"
	"testing"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// fakeKernel gives out backing ids.
type fakeKernel struct {
	last int32
	live map[int32]bool
}

func (k *fakeKernel) table() *blobTable {
	k.live = map[int32]bool{}
	t := &blobTable{unregister: func(id int32) {
		if !k.live[id] {
			panic("unregistered twice")
		}
		delete(k.live, id)
	}}
	t.init()
	return t
}

func (k *fakeKernel) register(*os.File) (int32, bool) {
	k.last++
	k.live[k.last] = true
	return k.last, true
}

func refuse(*os.File) (int32, bool) { return 0, false }

func tempFile(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func nth(i int) digest.Digest { return digest.Of(digest.SHA256, fmt.Append(nil, i)) }

func TestBackingIDs(t *testing.T) {
	var k fakeKernel
	table := k.table()
	file := tempFile(t)
	b := table.add(nth(0), 0, file, k.register)
	if file.Close() == nil {
		t.Error("the descriptor is still open")
	}
	if again := table.use(nth(0), 0); again != b {
		t.Error("the same blob has two ids")
	}
	if raced := table.add(nth(0), 0, tempFile(t), k.register); raced != b || len(k.live) != 1 {
		t.Errorf("a second id is kept: %v", k.live)
	}
	handles := []uint64{table.handle(b), table.handle(b), table.handle(b)}
	for _, h := range handles {
		table.release(h)
	}
	table.release(handles[0]) // unknown by now
	if !k.live[b.id] {
		t.Error("an idle id was given back at once")
	}
	held := table.handle(table.use(nth(0), 0))
	for i := 1; i <= maxIdleBackings+10; i++ {
		table.release(table.handle(table.add(nth(i), 0, tempFile(t), k.register)))
	}
	if len(k.live) != maxIdleBackings+1 || !k.live[b.id] {
		t.Errorf("%d ids are live; the one in use: %t", len(k.live), k.live[b.id])
	}
	if table.use(nth(10), 0) != nil {
		t.Error("an id that was used long ago is kept")
	}
	oldest := table.use(nth(11), 0)
	if oldest == nil {
		t.Fatal("not the least recently used id went")
	}
	table.release(table.handle(oldest))
	table.release(held)
	if !k.live[b.id] || len(k.live) != maxIdleBackings {
		t.Errorf("%d ids are live; the one used last: %t", len(k.live), k.live[b.id])
	}
}

func TestDescriptorsWithoutPassthrough(t *testing.T) {
	var k fakeKernel
	table := k.table()
	file := tempFile(t)
	b := table.add(nth(0), 0, file, refuse)
	other := tempFile(t)
	if table.add(nth(0), 0, other, refuse) != b || other.Close() == nil {
		t.Error("the descriptor of the slower access is kept")
	}
	one, two := table.handle(b), table.handle(b)
	table.release(one)
	if table.at(one) != nil || table.at(two) != b {
		t.Error("handles are mixed up")
	}
	if _, err := file.Stat(); err != nil {
		t.Errorf("closed while in use: %v", err)
	}
	table.release(two)
	if file.Close() == nil {
		t.Error("the descriptor is open after its last use")
	}
	if table.use(nth(0), 0) != nil {
		t.Error("a closed blob is still there")
	}
	left := tempFile(t)
	table.add(nth(1), 0, left, refuse)
	table.closeFiles()
	if left.Close() == nil {
		t.Error("closing the root left a descriptor open")
	}
}

// countedArrival counts how often it was closed.
type countedArrival struct {
	Arrival
	closed int
}

func (a *countedArrival) Close() { a.closed++ }

// The kernel takes only one way of opening a node at a time, in whatever order
// the accesses that found the two come here.
func TestOneWayOfOpeningForEachNode(t *testing.T) {
	var k fakeKernel
	table := k.table()
	slow, late := &countedArrival{}, &countedArrival{}
	const one, two, three = 1, 2, 3

	file := table.add(nth(0), one, tempFile(t), k.register)
	if b, fresh := table.addArriving(nth(0), one, late); b != file || fresh != nil || late.closed != 1 {
		t.Errorf("what is open as a file arrives: %+v, %d times closed", b, late.closed)
	}

	first, ar := table.addArriving(nth(1), one, slow)
	if b := table.add(nth(1), one, tempFile(t), k.register); b != first || len(k.live) != 1 {
		t.Errorf("what arrives is open as a file: %+v", b)
	}
	if b, fresh := table.addArriving(nth(1), two, late); b == first || b.arriving != ar || fresh != nil || late.closed != 2 {
		t.Errorf("there are two arrivals: %+v", b)
	}
	table.settle(ar, nil)
	if b := table.use(nth(1), one); b != first {
		t.Errorf("open as it was: %+v", b)
	}
	if b := table.use(nth(1), three); b != nil {
		t.Errorf("a new node is opened by what arrived: %+v", b)
	}
	whole := table.add(nth(1), three, tempFile(t), k.register)
	if b := table.use(nth(1), two); b.arriving != ar || b == first {
		t.Errorf("the second node changed: %+v", b)
	}
	for _, b := range []*blob{first, first, first, ar.opened[two], ar.opened[two]} {
		if slow.closed != 0 {
			t.Fatal("closed while in use")
		}
		table.leave(b)
	}
	if slow.closed != 1 || len(table.arriving) != 0 {
		t.Errorf("closed %d times after its last use", slow.closed)
	}
	if b := table.use(nth(1), one); b != whole {
		t.Errorf("after the last use: %+v", b)
	}
}

func TestFailedArrivalStaysForGood(t *testing.T) {
	var k fakeKernel
	table := k.table()
	data := &countedArrival{}
	b, ar := table.addArriving(nth(0), 7, data)
	table.leave(b)
	if nodes := table.settle(ar, os.ErrInvalid); len(nodes) != 1 || nodes[0] != 7 {
		t.Errorf("pages of nodes %v must go", nodes)
	}
	if b := table.use(nth(0), 8); b == nil || table.failure(b) != os.ErrInvalid {
		t.Errorf("the failure was forgotten: %+v", b)
	}
	if err := table.serve(ar); err != os.ErrInvalid || len(table.unverified()) != 0 {
		t.Errorf("bytes go out: %v", err)
	}
	table.closeFiles()
	if data.closed != 1 {
		t.Errorf("closed %d times", data.closed)
	}
}

package intake

import (
	"net/http"
	"testing"
)

// TestPermits has one caller take all permits. Others must get some of them, the youngest first,
// until they have as many as he.
func TestPermits(t *testing.T) {
	p := NewPermits(4)
	var yielded []int
	var leave []func()
	for i := range 4 {
		l, ok := p.Take("greedy", func() { yielded = append(yielded, i) })
		if !ok {
			t.Fatalf("permit %d is not to be had", i)
		}
		leave = append(leave, l)
	}
	never := func() { t.Error("one who has no more than others makes room") }
	if _, ok := p.Take("greedy", never); ok {
		t.Error("a fifth permit")
	}
	first, ok := p.Take("modest", never)
	if _, again := p.Take("modest", never); !ok || !again {
		t.Error("another caller gets no permit")
	}
	if _, ok := p.Take("modest", never); ok || len(yielded) != 2 || yielded[0] != 3 || yielded[1] != 2 {
		t.Errorf("another caller gets more than half (%t); %v made room", ok, yielded)
	}
	leave[3]() // is another's now
	if _, ok := p.Take("greedy", never); ok {
		t.Error("a permit that is another's was left")
	}
	first()
	first()
	if _, ok := p.Take("third", never); !ok {
		t.Error("a permit that was left is not to be had")
	}
	if _, ok := p.Take("third", func() {}); ok {
		t.Error("a third caller has as many as the first, who makes room")
	}
}

// TestPermitsOfSizes has one caller take small permits. They must make room for another caller's
// large one, as many as necessary and only if that is enough.
func TestPermitsOfSizes(t *testing.T) {
	p := NewPermits(16)
	yielded := 0
	for range 16 {
		if _, ok := p.Take("greedy", func() { yielded++ }); !ok {
			t.Fatal("a small permit is not to be had")
		}
	}
	never := func() { t.Error("one who has no more than others makes room") }
	if _, ok := p.TakeUnits("large", 17, never); ok || yielded != 0 {
		t.Errorf("more than there is, is to be had (%t); %d made room", ok, yielded)
	}
	if _, ok := p.TakeUnits("large", 12, never); ok || yielded != 0 {
		t.Errorf("more than a share is to be had (%t); %d made room", ok, yielded)
	}
	leave, ok := p.TakeUnits("large", 6, never)
	if !ok || yielded != 6 {
		t.Errorf("a share is to be had: %t; %d made room", ok, yielded)
	}
	leave()
	leave()
	for i := range 6 {
		if _, ok := p.Take("small", never); !ok {
			t.Errorf("small permit %d of what was left is not to be had", i)
		}
	}
	if yielded != 6 {
		t.Errorf("%d made room where there was some", yielded-6)
	}
}

// TestCallerOf names the callers of a call and of a page.
func TestCallerOf(t *testing.T) {
	got := make(chan string, 1)
	address := servePages(t, BoundsFor(32<<20), func(_ http.ResponseWriter, r *http.Request) { got <- CallerOf(r.Context()) }, nil)
	connect(t, address, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if caller := <-got; caller != AddressCaller("127.0.0.1") {
		t.Errorf("a page is for %q", caller)
	}
	client, service, _ := serve(t, Options{Bounds: BoundsFor(32 << 20)})
	service.called = func(caller string) { got <- caller }
	for _, caller := range []string{"somebody", ""} {
		if _, err := client.Check(as(t, caller), request("", 0)); err != nil {
			t.Fatal(err)
		}
		if known := <-got; known != caller {
			t.Errorf("the caller is %q, not %q", known, caller)
		}
	}
}

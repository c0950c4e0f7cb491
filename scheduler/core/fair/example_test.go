package fair_test

import (
	"fmt"
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core/fair"
)

// Two users wait, and one of them asked for much more: they get workers in turn.
func ExampleTree() {
	t := fair.New(fair.Options{Levels: []fair.Level{{}}})
	names := map[*fair.Item]string{}
	for i, user := range []string{"ann", "ann", "ann", "bob"} {
		item := &fair.Item{}
		names[item] = user
		t.Attach(&fair.Entry{}, item, []string{user}, fair.Rank{Age: uint64(i)})
		t.Enqueue(item, 0, false)
	}
	now := time.Unix(0, 0)
	for range 3 {
		worker := &fair.Worker{}
		item := t.Next(worker, now)
		t.Start(item, worker, now, 1)
		fmt.Println(names[item])
	}
	// Output:
	// ann
	// bob
	// ann
}

package core

import (
	"errors"
	"fmt"
	"testing"

	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
)

// TestManyOperationsOfOneClient has a client open the maximum number of operations, by default
// 100,000, and one more. The limit also counts operations of one action. Other clients must not be
// disturbed, and the client must be able to submit again later.
func TestManyOperationsOfOneClient(t *testing.T) {
	for _, test := range []struct{ most, bound, actions int }{{0, 100_000, 100_000}, {500, 500, 1}} {
		state := must(NewState(tuning.Config{MaxPerClient: test.most}))
		h := &history{t: t, actions: map[string]string{}}
		submit := func(name string, action int, client string) error {
			return state.Step(epoch, event.Submit{Operation: h.operation([]string{
				name,
				fmt.Sprint(action), "client=" + client,
			})}).Err
		}
		for i := range test.bound {
			if err := submit(fmt.Sprint("op", i), i%test.actions, "greedy"); err != nil {
				t.Fatal(err)
			}
		}
		if err := submit("more", 0, "greedy"); !errors.Is(err, event.ErrClientFull) {
			t.Errorf("one more: %v", err)
		}
		if err := submit("modest", 0, "other"); err != nil {
			t.Error(err)
		}
		state.Step(epoch, event.Cancel{Name: "op0"})
		if err := submit("more", 0, "greedy"); err != nil {
			t.Error(err)
		}
	}
}

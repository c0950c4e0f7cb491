package scratch

import (
	"testing"
	"time"
)

// TestSlowMeasurement: a pause after a long measurement ends when there may be far too much.
func TestSlowMeasurement(t *testing.T) {
	const most, left = 10 * gib, gib
	d := Disks{Used: 100 * gib, Free: 100 * gib, Prompt: true}
	var p pace
	now := time.Now()
	if !p.due(now, most, most, d) {
		t.Fatal("the first measurement is not due")
	}
	p.measured(now.Add(-4 * time.Second)) // the measurement took that long
	d.Used += left / 2
	if p.due(now.Add(time.Second), most, left, d) {
		t.Error("half of the room ends the pause")
	}
	d.Used += left
	if !p.due(now.Add(2*time.Second), most, left, d) {
		t.Error("more than the room does not end the pause")
	}
}

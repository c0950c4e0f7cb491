package recording

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

const (
	head = "kind,target,round,cpus,memory_mib,end,seconds,cpu_s,throttled_s,stalled_s,peak_mib\n"
	good = head + "Link,a,1,2,512,done,1.5,2.5,0.1,0,300.5\n# later\nLink,a,1,1,256,killed,1,0.9,0,0.2,256\n"
)

func TestRead(t *testing.T) {
	runs, err := Read(strings.NewReader("# made\n" + good))
	if err != nil {
		t.Fatal(err)
	}
	small := Run{Kind: "Link", Target: "a", Round: 1, CPUs: 1, MemoryMiB: 256, End: Killed, Seconds: 1, CPUSeconds: 0.9, StalledSeconds: 0.2, PeakMiB: 256}
	large := Run{Kind: "Link", Target: "a", Round: 1, CPUs: 2, MemoryMiB: 512, End: Done, Seconds: 1.5, CPUSeconds: 2.5, ThrottledSeconds: 0.1, PeakMiB: 300.5}
	if !reflect.DeepEqual(runs, []Run{large, small}) {
		t.Errorf("%+v", runs)
	}
	r, err := New(runs)
	want := &Recording{
		Commands: []Command{{Kind: "Link", Target: "a", Rounds: [][]Run{{small, large}}}}, CPUs: []int{1, 2}, MemoryMiB: 256,
	}
	if err != nil || !reflect.DeepEqual(r, want) {
		t.Errorf("%+v, %v, want %+v", r, err, want)
	}
	var text bytes.Buffer
	if err := Write(&text, "made", runs); err != nil {
		t.Fatal(err)
	}
	if again, err := Read(&text); err != nil || !reflect.DeepEqual(again, []Run{small, large}) {
		t.Errorf("written and read: %+v, %v", again, err)
	}
}

func TestBadRecordings(t *testing.T) {
	for of, test := range map[string]struct{ text, want string }{
		"empty":            {"# nothing\n", "it is empty"},
		"without a head":   {"a,b,1,1,256,done,1,1,0,0,1\n", "the columns are"},
		"too few fields":   {good + "Link,a,2\n", "line 5: wrong number of fields"},
		"no number":        {good + "Link,a,2,1,256,done,much,1,0,0,1\n", `line 5: seconds is "much", want a number`},
		"not a number":     {good + "Link,a,2,1,256,done,1,NaN,0,0,1\n", `line 5: cpu_s is "NaN"`},
		"negative":         {good + "Link,a,2,1,256,done,1,1,0,0,-1\n", `line 5: peak_mib is "-1"`},
		"half a CPU":       {good + "Link,a,2,0.5,256,done,1,1,0,0,1\n", `line 5: cpus is "0.5", want a positive integer`},
		"no time":          {good + "Link,a,2,1,256,done,0,1,0,0,1\n", "line 5: memory_mib and seconds must not be 0"},
		"no target":        {good + "Link,,2,1,256,done,1,1,0,0,1\n", "line 5: kind and target must not be empty"},
		"no end":           {good + "Link,a,2,1,256,won,1,1,0,0,1\n", `line 5: end is "won"`},
		"no runs":          {head, "recording without runs"},
		"a missing run":    {good + "Link,a,2,1,256,done,1,1,0,0,1\n", "round 2 of Link a does not have one run on each of [1 2] CPUs"},
		"a run twice":      {good + "Link,a,1,2,512,done,1,1,0,0,1\n", "round 1 of Link a does not have one run on each"},
		"other memory":     {good + "Link,b,1,1,256,done,1,1,0,0,1\nLink,b,1,2,256,done,1,1,0,0,1\n", "round 1 of Link b has 128 MiB for each of 2 CPUs, others have 256"},
		"never done":       {head + "Link,a,1,1,256,failed,1,1,0,0,1\n", "round 1 of Link a is not done on 1 CPUs: failed"},
		"an open quote":    {good + "\"Link,a,2,1,256,done,1,1,0,0,1\n", "read recording: "},
		"a second command": {good + "Link,b,1,1,256,done,1,1,0,0,1\n", "round 1 of Link b does not have one run"},
	} {
		runs, err := Read(strings.NewReader(test.text))
		if err == nil {
			_, err = New(runs)
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want one with %q", of, err, test.want)
		}
	}
}

// TestBuiltin checks that the recording shows what the streams are about: commands that need more
// memory than a small machine has, commands that are faster with more CPUs, and commands that are not.
func TestBuiltin(t *testing.T) {
	r, err := Builtin()
	if err != nil {
		t.Fatal(err)
	}
	outgrow, parallel, serial, runs := 0, 0, 0, 0
	for _, c := range r.Commands {
		if len(c.Rounds) < 3 {
			t.Errorf("%s %s has %d rounds", c.Kind, c.Target, len(c.Rounds))
		}
		runs += len(c.Rounds) * len(r.CPUs)
		small, large := c.Rounds[0][0], c.Rounds[0][len(r.CPUs)-1]
		switch ratio := small.Seconds / large.Seconds; {
		case small.End != Done:
			outgrow++
		case ratio > 1.5:
			parallel++
		case ratio > 0.8 && ratio < 1.2:
			serial++
		}
	}
	if outgrow < 2 || parallel < 8 || serial < 10 || runs < 300 {
		t.Errorf("of %d commands (%d runs) %d fail on the smallest machine, %d are parallel, %d serial", len(r.Commands), runs, outgrow, parallel, serial)
	}
}

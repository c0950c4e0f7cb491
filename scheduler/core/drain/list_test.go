package drain

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/proto/pattern"
)

func TestList(t *testing.T) {
	var l List
	parse := func(text string) pattern.Pattern {
		p, err := pattern.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	host := func(name string) func(string) (string, bool) {
		return func(attribute string) (string, bool) { return name, attribute == "host" }
	}
	if l.Matches(host("a")) || l.Delete(parse("host=a")) {
		t.Error("an empty list has a drain")
	}
	for _, text := range []string{"host=a", "host=b*"} {
		if put, err := l.Put(Record{Pattern: parse(text), Reason: text}); !put || err != nil {
			t.Errorf("put %s: %t, %v", text, put, err)
		}
	}
	since := time.Unix(1, 0)
	l.records[0].Since = since
	for _, equal := range []Record{{Reason: "other", Author: "ann", Since: since.Add(1)}, {Author: "bob"}} {
		equal.Pattern = parse("host=a")
		if put, err := l.Put(equal); put || err != nil {
			t.Errorf("put an equal pattern: %t, %v", put, err)
		}
	}
	if got := slices.Collect(l.All()); len(got) != 2 || got[0].Reason != "other" || got[0].Author != "ann" || !got[0].Since.Equal(since) ||
		got[1].Reason != "host=b*" {
		t.Errorf("in force are %+v", got)
	}
	if !l.Matches(host("b1")) || l.Matches(host("c")) {
		t.Error("the patterns match what they should not")
	}
	if !l.Delete(parse("host=b*")) || l.Matches(host("b1")) || !l.Matches(host("a")) {
		t.Error("deleted the wrong one")
	}
	for i := range Max - 1 {
		if _, err := l.Put(Record{Pattern: parse(fmt.Sprint("host=", i))}); err != nil {
			t.Fatal(err)
		}
	}
	if put, err := l.Put(Record{Pattern: parse("host=z")}); put || !errors.Is(err, ErrTooMany) {
		t.Errorf("put one too many: %t, %v", put, err)
	}
}

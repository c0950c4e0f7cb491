package settings

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// kinds are the types of values that Go's parsers read, in words.
var kinds = map[string]string{
	"int": "a whole number", "int32": "a whole number", "int64": "a whole number", "uint32": "a whole number",
	"float64": "a number", "duration": "a time such as 30s or 1m30s", "bool": "true or false",
}

// wholeTime are the texts of times, also of those that are too large, about which Go says no more.
var wholeTime = regexp.MustCompile(`^[-+]?([0-9]+(\.[0-9]*)?(ns|us|µs|μs|ms|s|m|h))+$`)

// Plain returns why a value cannot be set to a text, in words: an error of Go's parsers names
// functions of Go, and not what is allowed. Other errors stay as they are.
func Plain(value pflag.Value, text string, err error) error {
	kind := kinds[value.Type()]
	number := (*strconv.NumError)(nil)
	if kind == "" || !errors.As(err, &number) && !strings.HasPrefix(err.Error(), "time: ") {
		return err
	}
	what := "is not " + kind
	if errors.Is(err, strconv.ErrRange) || kind == kinds["duration"] && wholeTime.MatchString(text) {
		what = "is too large or too small"
	}
	return fmt.Errorf("%q %s%s", text, what, boundsOfValue(value).allowed())
}

// boundsOfValue returns the limits of a flag's value; none, if it has none.
func boundsOfValue(value pflag.Value) Bounds {
	switch v := value.(type) {
	case boundedValue:
		return v.bounds
	case checkedValue:
		return boundsOfValue(v.Value)
	}
	return Bounds{}
}

// allowed says which values are allowed, to end a sentence about one that is not.
func (b Bounds) allowed() string {
	var limits []string
	for _, side := range []struct{ words, bound string }{
		{"at least ", b.Min}, {"at most ", b.Max}, {"more than ", b.Above}, {"less than ", b.Below},
	} {
		if side.bound != "" {
			limits = append(limits, side.words+side.bound)
		}
	}
	if len(limits) == 0 {
		return ""
	}
	return "; it must be " + strings.Join(limits, " and ")
}

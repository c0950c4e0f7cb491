package console

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap/zapcore"

	"github.com/forerunner-build/forerunner/printable"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/web/text"
)

// values are fields by their names.
type values map[string]any

func valuesOf(fields []zapcore.Field) values {
	e := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(e)
	}
	return e.Fields
}

// text is a value as people read it; empty: there is none.
func (v values) text(name string) string {
	if x, ok := v[name]; ok {
		return textOf(x)
	}
	return ""
}

func (v values) duration(name string) time.Duration {
	d, _ := v[name].(time.Duration)
	return d
}

func (v values) number(name string) int64 {
	n, _ := v[name].(int64)
	return n
}

// pairsOf writes a field as name=value. Most are one, an error may be several.
func pairsOf(f zapcore.Field) (pairs []string) {
	v := valuesOf([]zapcore.Field{f})
	for _, name := range slices.Sorted(maps.Keys(v)) {
		if strings.HasSuffix(name, "Verbose") { // zap's verbose form of an error
			continue
		}
		value := textOf(v[name])
		if value == "" || strings.ContainsAny(value, " \"=") && f.Type != zapcore.ErrorType || printable.Name(value) != value {
			value = printable.Name(strconv.Quote(value))
		}
		pairs = append(pairs, name+"="+value)
	}
	return pairs
}

func textOf(x any) string {
	switch x := x.(type) {
	case string:
		return x
	case time.Duration:
		return text.Duration(x)
	case time.Time:
		return x.Format(time.RFC3339)
	case map[string]string:
		return names.Pairs(x)
	}
	return fmt.Sprint(x)
}

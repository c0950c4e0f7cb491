package settings

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

const (
	// Columns is the width of help texts.
	Columns    = 100
	helpIndent = 34 // of a flag's text
)

// The headings of flags without a group: those of every program, and manually registered ones.
const (
	lastGroup  = "General"
	otherGroup = "Flags"
)

// A Group is the flags below one heading.
type Group struct {
	Name  string
	Flags []*pflag.Flag
}

// Groups returns the visible flags, by their headings.
func Groups(flags *pflag.FlagSet) []Group {
	var groups []Group
	sorted := flags.SortFlags
	flags.SortFlags = false
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		name := otherGroup
		switch g := f.Annotations[groupOf]; {
		case len(g) > 0 && g[0] != "":
			name = g[0]
		case f.Name == "help" || f.Name == "version" || f.Name == "print-config":
			name = lastGroup
		}
		i := slices.IndexFunc(groups, func(g Group) bool { return g.Name == name })
		if i < 0 {
			i = len(groups)
			groups = append(groups, Group{Name: name})
		}
		groups[i].Flags = append(groups[i].Flags, f)
	})
	flags.SortFlags = sorted
	slices.SortStableFunc(groups, func(a, b Group) int {
		order := func(g Group) int { return slices.Index([]string{otherGroup, "", lastGroup}, g.Name) }
		rank := func(g Group) int {
			if i := order(g); i >= 0 {
				return i
			}
			return 1
		}
		return cmp.Compare(rank(a), rank(b))
	})
	return groups
}

// Help returns the --help text of flags.
func Help(flags *pflag.FlagSet) string {
	var b strings.Builder
	for _, g := range Groups(flags) {
		fmt.Fprintf(&b, "\n%s:\n", g.Name)
		for _, f := range g.Flags {
			head := "      --" + f.Name
			unit, usage, otherwise := Describe(f)
			if unit != "" {
				head += " " + unit
			}
			if otherwise != "" {
				usage += " (default " + otherwise + ")"
			}
			lines := Wrap(usage, Columns-helpIndent)
			if len(head) >= helpIndent-1 {
				fmt.Fprintf(&b, "%s\n", head)
				head = ""
			}
			for _, line := range lines {
				fmt.Fprintf(&b, "%-*s%s\n", helpIndent, head, line)
				head = ""
			}
		}
	}
	return b.String()
}

// Describe returns the value, the meaning and the default of a flag; an empty default is not worth
// a mention.
func Describe(f *pflag.Flag) (unit, usage, otherwise string) {
	if f.Annotations[groupOf] == nil { // registered by hand
		unit, usage = pflag.UnquoteUsage(f)
		if !strings.Contains(usage, "(default") {
			otherwise = f.DefValue
		}
		unit = strings.ToUpper(unit)
	} else {
		usage, otherwise = f.Usage, f.DefValue
		if u := f.Annotations[unitOf]; len(u) > 0 {
			unit = u[0]
		}
		if d := f.Annotations[otherwiseOf]; len(d) > 0 {
			otherwise = d[0]
		}
	}
	if slices.Contains([]string{"false", "0", "[]", "0s"}, otherwise) && f.Annotations[otherwiseOf] == nil {
		otherwise = ""
	}
	return unit, usage, otherwise
}

// Flow breaks the lines of a text anew, for the width of help texts. Paragraphs stay apart.
func Flow(text string) string {
	paragraphs := strings.Split(text, "\n\n")
	for i, p := range paragraphs {
		paragraphs[i] = strings.Join(Wrap(strings.ReplaceAll(p, "\n", " "), Columns), "\n")
	}
	return strings.Join(paragraphs, "\n\n")
}

// Wrap breaks text into lines of at most width bytes, if its words allow it.
func Wrap(text string, width int) (lines []string) {
	for paragraph := range strings.SplitSeq(text, "\n") {
		line := ""
		for _, word := range strings.Fields(paragraph) {
			if line != "" && len(line)+1+len(word) > width {
				lines = append(lines, line)
				line = ""
			}
			if line != "" {
				line += " "
			}
			line += word
		}
		lines = append(lines, line)
	}
	return lines
}

package comparison

import (
	"fmt"
	"strings"
)

// sum describes the differences in sentences.
func (x *explaining) sum() {
	if len(x.Kinds) == 0 {
		if x.Problem == "" {
			x.say("The records show no difference except the digest of the action.")
		}
		return
	}
	said := 0
	for _, k := range x.Kinds {
		for _, d := range k.List {
			if said++; said <= maxSaid {
				x.Reasons = append(x.Reasons, sentence(k, d))
			}
		}
		said += k.More
	}
	if said > maxSaid {
		x.say("%d more differences follow below.", said-maxSaid)
	}
	if x.onlyUnread() && !Skipped(x.r) {
		x.say("Only inputs differ that no known run of this command read: remove them from the rule, " +
			"or let workers skip such runs (--reuse=profile).")
	}
}

// onlyUnread reports whether all differences are in inputs that no run read.
func (x *explaining) onlyUnread() bool {
	if len(x.Kinds) != 1 || !x.Kinds[0].IsInputs() || x.Kinds[0].More > 0 || x.Problem != "" {
		return false
	}
	for _, d := range x.Kinds[0].List {
		if d.Read != ByNone {
			return false
		}
	}
	return true
}

// sentence describes one difference.
func sentence(k Kind, d Difference) string {
	if k.IsInputs() {
		read := map[Read]string{
			ByLast: "and was read", Earlier: "and was read by an earlier run, not by the last one", ByNone: "and was not read",
		}[d.Read]
		return fmt.Sprintf("Input %s.", strings.TrimSpace(d.Name+" "+whose(d)+" "+read))
	}
	subject := map[string]string{"Environment": "variable ", "Platform": "platform property "}[k.Name] + d.Name
	subject = strings.ToUpper(subject[:1]) + subject[1:]
	if d.Other == "" || d.This == "" {
		return fmt.Sprintf("%s %s: %s.", subject, whose(d), short(d.Other+d.This))
	}
	return fmt.Sprintf("%s %s: %s there, %s here.", subject, whose(d), short(d.Other), short(d.This))
}

// whose says which run has the value.
func whose(d Difference) string {
	switch {
	case d.Other == "":
		return "is only in this run"
	case d.This == "":
		return "is only in the other run"
	}
	return "differs"
}

// maxShort limits the length of a value in a sentence, in bytes.
const maxShort = 80

// short returns the beginning of a value.
func short(s string) string {
	if len(s) > maxShort {
		return strings.ToValidUTF8(s[:maxShort], "") + "…"
	}
	return s
}

package comparison

import (
	"fmt"
	"slices"
	"strings"
)

// platform returns the platform properties by name.
func (a *action) platform() map[string]string {
	p := a.GetPlatform()
	if p == nil {
		//lint:ignore SA1019 clients of API 2.0 send this field
		p = a.command.GetPlatform()
	}
	all := map[string]string{}
	for _, x := range p.GetProperties() {
		all[x.GetName()] = strings.TrimPrefix(all[x.GetName()]+", "+orEmpty(x.GetValue()), ", ")
	}
	return all
}

func (a *action) environment() map[string]string {
	all := map[string]string{}
	for _, x := range a.command.GetEnvironmentVariables() {
		all[x.GetName()] = orEmpty(x.GetValue())
	}
	return all
}

// orEmpty makes an empty value visible.
func orEmpty(value string) string {
	if value == "" {
		return "(empty)"
	}
	return value
}

// rest returns the other fields that the action's digest depends on.
func (a *action) rest() map[string]string {
	//lint:ignore SA1019 clients of API 2.0 send these fields
	outputs := slices.Concat(a.command.GetOutputPaths(), a.command.GetOutputFiles(), a.command.GetOutputDirectories())
	all := map[string]string{
		"working directory": a.command.GetWorkingDirectory(), "outputs": strings.Join(outputs, " "), "salt": fmt.Sprintf("%x", a.GetSalt()),
		"output node properties":  strings.Join(a.command.GetOutputNodeProperties(), " "),
		"output directory format": a.command.GetOutputDirectoryFormat().String(),
	}
	if a.GetTimeout() != nil {
		all["timeout"] = a.GetTimeout().AsDuration().String()
	}
	if a.GetDoNotCache() {
		all["do_not_cache"] = "true"
	}
	return all
}

// between lists the differences of two maps, sorted by name.
func between(before, now map[string]string) (list []Difference) {
	for name, was := range before {
		if is, there := now[name]; is != was || !there {
			list = append(list, Difference{Name: name, Other: was, This: is})
		}
	}
	for name, is := range now {
		if _, there := before[name]; !there {
			list = append(list, Difference{Name: name, This: is})
		}
	}
	slices.SortFunc(list, func(a, b Difference) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// ofArguments compares command lines without their common beginning and end. If the remaining lists
// have equal length, it compares them one by one; otherwise it lists the arguments that only one of
// them has.
func ofArguments(before, now []string) (list []Difference) {
	from := 0
	for from < min(len(before), len(now)) && before[from] == now[from] {
		from++
	}
	before, now = before[from:], now[from:]
	for len(before) > 0 && len(now) > 0 && before[len(before)-1] == now[len(now)-1] {
		before, now = before[:len(before)-1], now[:len(now)-1]
	}
	if len(before) == len(now) {
		for i := range before {
			if before[i] != now[i] {
				list = append(list, Difference{Name: fmt.Sprintf("argument %d", from+i), Other: before[i], This: now[i]})
			}
		}
		return list
	}
	gone, added := lacking(before, now), lacking(now, before)
	for _, a := range gone {
		list = append(list, Difference{Name: "argument", Other: a})
	}
	for _, a := range added {
		list = append(list, Difference{Name: "argument", This: a})
	}
	if len(list) == 0 {
		list = append(list, Difference{Name: "order of arguments", Other: strings.Join(before, " "), This: strings.Join(now, " ")})
	}
	return list
}

// lacking returns the elements of list that other lacks, with their multiplicity.
func lacking(list, other []string) (rest []string) {
	count := map[string]int{}
	for _, a := range other {
		count[a]++
	}
	for _, a := range list {
		if count[a]--; count[a] < 0 {
			rest = append(rest, a)
		}
	}
	return rest
}

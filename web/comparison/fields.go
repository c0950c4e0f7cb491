package comparison

import (
	"fmt"
	"slices"
	"strings"
)

// platform are the properties by name.
func (a *action) platform() map[string]string {
	p := a.GetPlatform()
	if p == nil {
		//lint:ignore SA1019 what clients of API 2.0 send
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

// orEmpty shows an empty value as such.
func orEmpty(value string) string {
	if value == "" {
		return "(empty)"
	}
	return value
}

// rest has the other parts of an action's key.
func (a *action) rest() map[string]string {
	//lint:ignore SA1019 what clients of API 2.0 send
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

// between lists the differences of two maps, by name.
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

// ofArguments compares command lines without their common beginning and end. The rest is compared
// one by one if there are as many arguments; otherwise those are listed that the other lacks.
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

// lacking returns the elements of a list that another lacks, as often as it does.
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

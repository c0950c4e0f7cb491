package quota

import (
	"errors"
	"strings"
	"testing"
)

func linux(isa string) Label {
	return Label{Name: isa, Properties: map[string]string{"OSFamily": "linux", "ISA": isa}}
}

func TestConfigIsChecked(t *testing.T) {
	all := []Label{linux("x86"), linux("arm"), {Name: "mac", Properties: map[string]string{"OSFamily": "macos"}}}
	anyLinux := Label{Name: "linux", Properties: map[string]string{"OSFamily": "linux"}}
	for _, test := range []struct {
		name   string
		config Config
		want   string // the fault; empty: none
	}{
		{"none", Config{}, ""},
		{"good", Config{all, []Cohort{{Name: "a", Labels: []string{"x86", "arm"}}, {Name: "b", Labels: []string{"mac"}, Unit: Slots}}}, ""},
		{"a label of no cohort", Config{all, []Cohort{{Name: "a", Labels: []string{"x86"}}}}, ""},
		{"wide and narrow in one", Config{append(all, anyLinux), []Cohort{{Name: "a", Labels: []string{"x86", "linux"}}}}, ""},
		{"nameless label", Config{Labels: []Label{{Properties: map[string]string{"a": "b"}}}}, `label "": it has no name`},
		{"empty label", Config{Labels: []Label{{Name: "x"}}}, `label "x": it has no properties`},
		{"label twice", Config{Labels: []Label{linux("x86"), linux("x86")}}, `label "x86": it is here twice`},
		{"same label", Config{Labels: []Label{linux("x86"), {"y", linux("x86").Properties}}}, `label "y": it has the same properties as label "x86"`},
		{"nameless cohort", Config{all, []Cohort{{Labels: []string{"x86"}}}}, "it has no name"},
		{"cohort twice", Config{all, []Cohort{{Name: "a", Labels: []string{"x86"}}, {Name: "a", Labels: []string{"arm"}}}}, `cohort "a": it is here twice`},
		{"empty cohort", Config{all, []Cohort{{Name: "a"}}}, `cohort "a": it has no labels`},
		{"unknown label", Config{all, []Cohort{{Name: "a", Labels: []string{"z80"}}}}, `cohort "a": there is no label "z80"`},
		{"label twice in one", Config{all, []Cohort{{Name: "a", Labels: []string{"x86", "x86"}}}}, `cohort "a": label "x86" is here twice`},
		{"overlap", Config{all, []Cohort{{Name: "a", Labels: []string{"x86"}}, {Name: "b", Labels: []string{"x86"}}}}, `cohort "b": it has the same labels as cohort "a"`},
		{"a label of two cohorts", Config{all, []Cohort{{Name: "a", Labels: []string{"x86"}}, {Name: "b", Labels: []string{"arm", "x86"}}}}, ""},
		{"wide and narrow in a third", Config{append(all, anyLinux), []Cohort{{Name: "a", Labels: []string{"x86"}}, {Name: "b", Labels: []string{"linux"}}, {Name: "c", Labels: []string{"linux", "x86"}}}}, ""},
		{"ambiguous", Config{append(all, anyLinux), []Cohort{{Name: "a", Labels: []string{"x86"}}, {Name: "b", Labels: []string{"linux"}}}}, `cohort "b": one of label "linux" and of "x86" in cohort "a" implies the other`},
		{"unit", Config{all, []Cohort{{Name: "a", Labels: []string{"x86"}, Unit: "pieces"}}}, `cohort "a": unit "pieces" is neither`},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := test.config.Validate()
			if test.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			var fault *Fault
			if !errors.As(err, &fault) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %s", err, test.want)
			}
		})
	}
}

func TestCohortOfAWorker(t *testing.T) {
	gpu := Label{Name: "gpu", Properties: map[string]string{"gpu": "1"}}
	config := Config{[]Label{linux("x86"), linux("arm"), gpu}, []Cohort{
		{Name: "cpu", Labels: []string{"x86", "arm"}}, {Name: "gpu", Labels: []string{"gpu"}},
	}}
	for _, test := range []struct{ properties, want string }{
		{"OSFamily=linux ISA=x86", "cpu"},
		{"OSFamily=linux ISA=arm more=1", "cpu"},
		{"gpu=1", "gpu"},
		{"gpu=1 OSFamily=linux ISA=x86", ""}, // all its labels are in neither
		{"OSFamily=linux", ""},
		{"", ""},
	} {
		cohort, ok := config.Of(func(name, value string) bool {
			return strings.Contains(" "+test.properties+" ", " "+name+"="+value+" ")
		})
		if cohort.Name != test.want || ok != (test.want != "") {
			t.Errorf("%s: %q, %t", test.properties, cohort.Name, ok)
		}
	}
	config.Cohorts = []Cohort{
		{Name: "all", Labels: []string{"x86", "arm", "gpu"}}, {Name: "fast", Labels: []string{"x86", "gpu"}}, {Name: "arm", Labels: []string{"arm"}},
	}
	for properties, want := range map[string]string{
		"OSFamily=linux ISA=arm": "arm", "OSFamily=linux ISA=x86": "fast", "gpu=1": "fast", "gpu=1 OSFamily=linux ISA=x86": "fast",
		"gpu=1 OSFamily=linux ISA=arm": "all",
	} {
		cohort, _ := config.Of(func(name, value string) bool {
			return strings.Contains(" "+properties+" ", " "+name+"="+value+" ")
		})
		if cohort.Name != want {
			t.Errorf("%s is in %q, want %q", properties, cohort.Name, want)
		}
	}
	if a, b := (Cohort{}).Cost(8), (Cohort{Unit: Slots}).Cost(8); a != 8 || b != 1 || (Cohort{}).Cost(0) != 1 {
		t.Errorf("class 8 counts %d, as a slot %d", a, b)
	}
}

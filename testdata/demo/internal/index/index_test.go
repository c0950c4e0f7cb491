package index

import (
	"slices"
	"testing"

	"example.com/demo/internal/text"
)

func sample() *Index {
	ix := New()
	ix.Add("apples", text.Parse("apple apple pear"))
	ix.Add("pears", text.Parse("# Pear\npear plum the"))
	ix.Add("plums", text.Parse("plum"))
	return ix
}

func TestTop(t *testing.T) {
	want := []Term{{"pear", 3}, {"apple", 2}, {"plum", 2}}
	if got := sample().Top(10); !slices.Equal(got, want) {
		t.Errorf("top %v, want %v", got, want)
	}
	if got := sample().Top(1); !slices.Equal(got, want[:1]) {
		t.Errorf("top 1 is %v, want %v", got, want[:1])
	}
}

func TestSearch(t *testing.T) {
	for _, test := range []struct {
		query string
		want  []string
	}{
		{"pear", []string{"pears", "apples"}},
		{"PLUM plum", []string{"plums", "pears"}},
		{"the", nil},
		{"quince", nil},
	} {
		var got []string
		for _, h := range sample().Search(test.query) {
			got = append(got, h.Name)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%q finds %q, want %q", test.query, got, test.want)
		}
	}
}

func TestDocuments(t *testing.T) {
	d := sample().Documents()[1]
	if d.Name != "pears" || d.Words != 4 || d.Distinct != 3 || len(d.Headings) != 1 {
		t.Errorf("pears is %+v", d)
	}
}

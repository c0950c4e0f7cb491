package text

import (
	"slices"
	"testing"
)

func TestWords(t *testing.T) {
	for _, test := range []struct {
		in   string
		want []string
	}{
		{"", nil},
		{"One two, THREE.", []string{"one", "two", "three"}},
		{"don't 'quote' it", []string{"don't", "quote", "it"}},
		{"naïve café 42", []string{"naïve", "café", "42"}},
		{"--- ''", nil},
	} {
		if got := Words(test.in); !slices.Equal(got, test.want) {
			t.Errorf("Words(%q) = %q, want %q", test.in, got, test.want)
		}
	}
}

func TestParse(t *testing.T) {
	n := Parse("# A title\n\nSome words.\n```\nnot these\n```\n## Next\n#hashtag\n")
	if want := []string{"A title", "Next"}; !slices.Equal(n.Headings, want) {
		t.Errorf("headings %q, want %q", n.Headings, want)
	}
	want := []string{"a", "title", "some", "words", "next", "hashtag"}
	if !slices.Equal(n.Words, want) {
		t.Errorf("words %q, want %q", n.Words, want)
	}
}

func TestIsCommon(t *testing.T) {
	if !IsCommon("the") || IsCommon("digest") || IsCommon("") {
		t.Error("the is common; digest and the empty word are not")
	}
}

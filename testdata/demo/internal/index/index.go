// Package index finds notes by the words in them. An Index maps each word to the
// notes it occurs in and ranks the notes for a query by tf-idf: a word counts for
// more the oftener it is in a note and the fewer notes have it.
package index

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"example.com/demo/internal/text"
)

// A Document is what an Index knows of a note.
type Document struct {
	Name     string
	Headings []string
	Words    int // all of them
	Distinct int // words that differ
}

// A Term is a word and how often it occurs in all notes.
type Term struct {
	Word  string
	Count int
}

// A Hit is a note that has words of a query.
type Hit struct {
	Name    string
	Score   float64 // comparable within one search
	Matched []string
}

// An Index holds notes by their words.
type Index struct {
	documents []Document
	postings  map[string]map[int]int // word, document, occurrences
}

// New returns an Index without notes.
func New() *Index {
	return &Index{postings: map[string]map[int]int{}}
}

// Add indexes a note.
func (ix *Index) Add(name string, n text.Note) {
	id := len(ix.documents)
	distinct := 0
	for _, w := range n.Words {
		in := ix.postings[w]
		if in == nil {
			in = map[int]int{}
			ix.postings[w] = in
		}
		if in[id] == 0 {
			distinct++
		}
		in[id]++
	}
	ix.documents = append(ix.documents, Document{
		Name: name, Headings: n.Headings, Words: len(n.Words), Distinct: distinct,
	})
}

// Documents returns what was added, in that order.
func (ix *Index) Documents() []Document {
	return slices.Clone(ix.documents)
}

// Terms returns how many different words there are.
func (ix *Index) Terms() int {
	return len(ix.postings)
}

// Top returns the n most frequent words that are not common ones, the alphabet
// deciding between equals.
func (ix *Index) Top(n int) []Term {
	var terms []Term
	for w, in := range ix.postings {
		if text.IsCommon(w) {
			continue
		}
		t := Term{Word: w}
		for count := range maps.Values(in) {
			t.Count += count
		}
		terms = append(terms, t)
	}
	slices.SortFunc(terms, func(a, b Term) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Word, b.Word))
	})
	return terms[:max(0, min(n, len(terms)))]
}

// Search returns the notes that have words of query, the best first.
func (ix *Index) Search(query string) []Hit {
	words := text.Words(query)
	slices.Sort(words)
	words = slices.Compact(words)
	var hits []Hit
	for id, d := range ix.documents {
		hit := Hit{Name: d.Name}
		for _, w := range words {
			in := ix.postings[w]
			if text.IsCommon(w) || in[id] == 0 {
				continue
			}
			frequency := float64(in[id]) / float64(d.Words)
			rarity := math.Log(1 + float64(len(ix.documents))/float64(len(in)))
			hit.Score += 100 * frequency * rarity
			hit.Matched = append(hit.Matched, w)
		}
		if hit.Matched != nil {
			hits = append(hits, hit)
		}
	}
	slices.SortStableFunc(hits, func(a, b Hit) int { return cmp.Compare(b.Score, a.Score) })
	return hits
}

package main

import (
	"embed"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"text/tabwriter"

	"example.com/demo/internal/index"
	"example.com/demo/internal/text"
)

//go:embed notes/*.md
var notes embed.FS

func main() {
	query := flag.String("query", "digest of a build", "the words to look for")
	top := flag.Int("top", 8, "how many frequent words to show")
	flag.Parse()
	if err := run(os.Stdout, *query, *top); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run prints the report about the notes to w.
func run(w io.Writer, query string, top int) error {
	ix, err := load(notes)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "note\theadings\twords\tdistinct")
	for _, d := range ix.Documents() {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\n", d.Name, len(d.Headings), d.Words, d.Distinct)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nmost frequent of %d distinct words:\n", ix.Terms())
	for _, t := range ix.Top(top) {
		fmt.Fprintf(w, "%4d  %s\n", t.Count, t.Word)
	}
	fmt.Fprintf(w, "\nbest matches for %q:\n", query)
	for _, hit := range ix.Search(query) {
		fmt.Fprintf(w, "%.3f  %s (%s)\n", hit.Score, hit.Name, strings.Join(hit.Matched, ", "))
	}
	return nil
}

// load indexes every note of files, in the order of their names.
func load(files fs.FS) (*index.Index, error) {
	names, err := fs.Glob(files, "notes/*.md")
	if err != nil {
		return nil, err
	}
	ix := index.New()
	for _, name := range names {
		b, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		ix.Add(strings.TrimPrefix(name, "notes/"), text.Parse(string(b)))
	}
	return ix, nil
}

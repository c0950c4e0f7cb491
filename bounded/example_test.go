package bounded_test

import (
	"fmt"

	"github.com/forerunner-build/forerunner/bounded"
)

// A cache of texts that may have ten bytes together.
func ExampleCache() {
	texts := bounded.New[string, string](10)
	for _, text := range []string{"one", "two", "three"} {
		texts.Put(text, text, int64(len(text)))
	}
	_, ok := texts.Get("one")
	fmt.Println("one is there:", ok)
	_, ok = texts.Get("three")
	fmt.Println("three is there:", ok)
	// Output:
	// one is there: false
	// three is there: true
}

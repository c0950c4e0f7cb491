package pattern_test

import (
	"fmt"
	"log"

	"github.com/forerunner-build/forerunner/proto/pattern"
)

// A pattern picks out workers by their identity.
func ExampleParse() {
	p, err := pattern.Parse("host=build-*")
	if err != nil {
		log.Fatal(err)
	}
	for _, host := range []string{"build-7", "laptop"} {
		identity := map[string]string{"host": host}
		fmt.Println(host, p.Match(func(name string) (string, bool) {
			value, ok := identity[name]
			return value, ok
		}))
	}
	// Output:
	// build-7 true
	// laptop false
}
